"""Programs of several processes: ranks, arrays that are split over them, and what passes between them."""

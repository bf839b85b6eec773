"""Programs with several processes: ranks, arrays that are split over the ranks, and communication between ranks."""

//! [`History`]: repeated launches of a program, held back until they form one graph.
//!
//! A history consists of launches and *cuts*: points where the program asked for something else, so that all launches
//! had to be submitted. When the latest launches and cuts have occurred three times in a row, a fourth round is
//! expected. Each launch that matches the expected one, arguments included, is held. With the last one before a cut,
//! or at the end of the round, all held launches are submitted as one graph. If a launch does not match, the held
//! launches are submitted one by one, and the history starts again.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use crate::capture::{CapturedLaunch, Step, Work};
use crate::captured_graph::CapturedGraph;
use crate::kernel::LoadedKernel;

/// Maximum number of launches and cuts in a round.
const LONGEST: usize = 256;
/// Number of times that a round must repeat before another one is expected.
const AGAIN: usize = 2;

#[derive(Clone)]
enum Token {
    Launch(Arc<CapturedLaunch>),
    Cut,
}

/// The latest launches and cuts.
#[derive(Default)]
pub(super) struct History {
    /// With their hashes; the first has the number `first`.
    tokens: VecDeque<(u64, Token)>,
    first: usize,
    /// For each hash the number of the latest token.
    latest: HashMap<u64, usize>,
    /// The current token and the `run` tokens before it also occurred this many tokens earlier.
    period: usize,
    run: usize,
    round: Option<Round>,
    /// How many rounds were expected.
    rounds: u64,
}

/// A round that is expected.
struct Round {
    tokens: Vec<Token>,
    /// The next one.
    at: usize,
    /// The first that is held, up to `at`.
    held: usize,
    /// The graphs, by their first launch, and whether launches of it may be fused.
    graphs: HashMap<(usize, bool), Arc<CapturedGraph>>,
    number: u64,
}

/// Identifies a graph of a round.
#[derive(Clone, Copy)]
pub(super) struct GraphId {
    round: u64,
    at: (usize, bool),
}

/// Launches to submit one by one.
pub(super) type Held = Vec<Arc<CapturedLaunch>>;

/// The treatment of a launch.
pub(super) enum Expected {
    /// It is held.
    Held,
    /// It completes the held launches to a graph, which must be launched.
    Complete(Arc<CapturedGraph>),
    /// It completes these launches to a graph, which must be made.
    Make(GraphId, Held),
    /// It was not expected: the held launches must be submitted first.
    Not(Held),
}

impl CapturedLaunch {
    fn is(&self, kernel: &LoadedKernel, args: &[u64]) -> bool {
        self.kernel.module == kernel.module && *self.args == *args
    }
}

fn hash_of(token: &Token) -> u64 {
    let mut hasher = DefaultHasher::new();
    match token {
        Token::Launch(launch) => (launch.kernel.module, &launch.args).hash(&mut hasher),
        Token::Cut => 0u8.hash(&mut hasher),
    }
    hasher.finish()
}

impl History {
    /// Takes a launch if it is the expected one. `fuses` says whether launches may be fused.
    pub(super) fn take(&mut self, kernel: &LoadedKernel, args: &[u64], fuses: bool) -> Expected {
        let Some(round) = &mut self.round else { return Expected::Not(Held::new()) };
        match &round.tokens[round.at] {
            Token::Launch(launch) if launch.is(kernel, args) => {}
            Token::Launch(_) => return Expected::Not(self.give_up()),
            // Nothing is held here. A launch that stays on the default stream is the cut.
            Token::Cut => return Expected::Not(Held::new()),
        }
        round.at += 1;
        if matches!(round.tokens.get(round.at), Some(Token::Launch(_))) {
            return Expected::Held;
        }
        let id = GraphId { round: round.number, at: (round.held, fuses) };
        let expected = match round.graphs.get(&id.at) {
            Some(known) => Expected::Complete(known.clone()),
            None => Expected::Make(id, round.launches()),
        };
        round.begin_run();
        expected
    }

    /// Keeps a graph for the next time, unless another round is expected meanwhile.
    pub(super) fn keep_graph(&mut self, id: GraphId, graph: Arc<CapturedGraph>) {
        if let Some(round) = self.round.as_mut().filter(|round| round.number == id.round) {
            round.graphs.insert(id.at, graph);
        }
    }

    /// Notes a launch that was submitted.
    pub(super) fn note(&mut self, launch: CapturedLaunch) {
        if self.round.is_some() {
            // A cut was expected in its place.
            self.give_up();
        }
        self.push(Token::Launch(Arc::new(launch)));
    }

    /// All launches must be submitted now. Yields those that were held.
    pub(super) fn cut(&mut self) -> Held {
        let Some(round) = &mut self.round else {
            if matches!(self.tokens.back(), Some((_, Token::Launch(_)))) {
                self.push(Token::Cut);
            }
            return Held::new();
        };
        if matches!(round.tokens[round.at], Token::Cut) {
            round.at += 1;
            round.begin_run();
            return Held::new();
        }
        // Nothing was launched since the last one.
        if round.held == round.at && (round.at == 0 || matches!(round.tokens[round.at - 1], Token::Cut)) {
            return Held::new();
        }
        self.give_up()
    }

    /// Resets the history. Returns the held launches.
    pub(super) fn give_up(&mut self) -> Held {
        let held = self.round.as_ref().map(Round::launches).unwrap_or_default();
        *self = History { rounds: self.rounds, ..History::default() };
        held
    }

    fn push(&mut self, token: Token) {
        let hash = hash_of(&token);
        let now = self.first + self.tokens.len();
        let before = |back: usize| now.checked_sub(back)?.checked_sub(self.first).and_then(|at| self.tokens.get(at));
        let again = self.period > 0 && before(self.period).is_some_and(|(known, _)| *known == hash);
        if again {
            self.run += 1;
        } else {
            self.period = self.latest.get(&hash).map_or(0, |number| now - number);
            self.run = usize::from(self.period > 0);
        }
        self.latest.insert(hash, now);
        self.tokens.push_back((hash, token));
        if self.period > LONGEST {
            (self.period, self.run) = (0, 0);
        }
        if self.period > 0 && self.run >= AGAIN * self.period {
            self.expect_round();
        } else if self.tokens.len() > (AGAIN + 2) * LONGEST {
            self.forget_oldest();
        }
    }

    /// The latest tokens are a round that came often enough: another one is expected.
    fn expect_round(&mut self) {
        let round: Vec<Token> = self.tokens.iter().skip(self.tokens.len() - self.period).map(|t| t.1.clone()).collect();
        // Tokens of equal hashes a period ago have equal arguments only most likely.
        let same = |(a, b): (&Token, &(u64, Token))| match (a, &b.1) {
            (Token::Launch(a), Token::Launch(b)) => a.is(&b.kernel, &b.args),
            (Token::Cut, Token::Cut) => true,
            _ => false,
        };
        let earlier = self.tokens.iter().skip(self.tokens.len() - 2 * self.period);
        if round.iter().zip(earlier).all(same) {
            let number = self.rounds + 1;
            *self = History { rounds: number, ..History::default() };
            self.round = Some(Round::new(round, number));
        }
    }

    fn forget_oldest(&mut self) {
        while self.tokens.len() > (AGAIN + 1) * LONGEST {
            self.tokens.pop_front();
            self.first += 1;
        }
        let first = self.first;
        self.latest.retain(|_, number| *number >= first);
    }
}

impl Round {
    /// A round whose first token is expected next. It is rotated to begin after a cut, because launches of a run become
    /// one graph only within the round.
    fn new(mut tokens: Vec<Token>, number: u64) -> Round {
        let cut = tokens.iter().rposition(|t| matches!(t, Token::Cut));
        let after = cut.map_or(0, |cut| (cut + 1) % tokens.len());
        tokens.rotate_left(after);
        let at = (tokens.len() - after) % tokens.len();
        Round { tokens, at, held: at, graphs: HashMap::new(), number }
    }

    /// Those that are held.
    fn launches(&self) -> Held {
        let launch = |t: &Token| match t {
            Token::Launch(launch) => Some(launch.clone()),
            Token::Cut => None,
        };
        self.tokens[self.held..self.at].iter().filter_map(launch).collect()
    }

    /// Starts to hold launches again.
    fn begin_run(&mut self) {
        if self.at == self.tokens.len() {
            self.at = 0;
        }
        self.held = self.at;
    }
}

/// Steps of a graph for launches, each after those in its list. Steps of a lane share a frame, so each is
/// also after the one before it there.
pub(super) fn steps_of(launches: &[Arc<CapturedLaunch>], depends_on: &[Vec<usize>], most_lanes: usize) -> Vec<Step> {
    let mut ends: Vec<usize> = Vec::new();
    let mut steps: Vec<Step> = Vec::with_capacity(launches.len());
    for (place, launch) in launches.iter().enumerate() {
        let mut depends_on = depends_on[place].clone();
        let follows = |end: &usize| depends_on.contains(end);
        let lane = ends.iter().position(follows).unwrap_or_else(|| match ends.len() < most_lanes {
            true => ends.len(),
            // The lane whose last step is the earliest.
            false => (0..ends.len()).min_by_key(|lane| ends[*lane]).unwrap_or(0),
        });
        match ends.get_mut(lane) {
            Some(end) => {
                if !depends_on.contains(end) {
                    depends_on.push(*end);
                }
                *end = place;
            }
            None => ends.push(place),
        }
        depends_on.sort_unstable();
        steps.push(Step { lane, depends_on, work: Work::Launch(launch.clone()), site: None });
    }
    steps
}

//! [`History`]: repeated launches of a program, held back until they form one graph.
//!
//! A history consists of launches and *cuts*: points where the program asked for something else, so that all launches
//! had to be submitted. When the latest launches and cuts have occurred three times in a row, a fourth round is
//! expected. Each launch that matches the expected one, arguments included, is held. With the last one before a cut,
//! or at the end of the round, all held launches are submitted as one graph. If a launch does not match, the held
//! launches are submitted one by one, and the history starts again.
//!
//! Of launches that are not known to repeat, a history has only hashes, so it costs little and keeps no memory.

use std::collections::{HashMap, VecDeque};
use std::iter;
use std::sync::Arc;

use super::GraphId;
use super::temporaries::{Ready, Temporaries};
use super::word_hash::{WordHash, hash_of};
use crate::capture::CapturedLaunch;
use crate::captured_graph::CapturedGraph;
use crate::kernel::LoadedKernel;

/// Maximum number of launches and cuts in a round.
const LONGEST: usize = 256;
/// Number of times that a round must repeat before another one is expected.
const AGAIN: usize = 2;

#[derive(Clone)]
enum Token {
    Launch(Arc<CapturedLaunch>),
    /// A launch that did not occur before.
    NewLaunch,
    Cut,
}

/// The latest launches and cuts.
#[derive(Default)]
pub(super) struct History {
    /// The first has the number `first`.
    tokens: VecDeque<Noted>,
    first: usize,
    /// By all arguments, and by those besides memory.
    exact: Repetition,
    besides_memory: Repetition,
    round: Option<Round>,
    /// A graph that must be launched, or its launches submitted, before anything else.
    pub(super) ready: Option<Ready>,
    /// How many rounds were expected.
    rounds: u64,
    /// The latest launch may be fused.
    fuses: bool,
    /// Searches for temporaries without success, and tokens until the next search.
    misses: usize,
    pause: usize,
}

/// A token with its hashes: of all arguments, and of those besides memory.
struct Noted {
    hashes: [u64; 2],
    token: Token,
}

/// Looks for repetition in a sequence of hashes.
#[derive(Default)]
struct Repetition {
    /// For each hash the number of the latest token.
    latest: HashMap<u64, usize, WordHash>,
    /// The current token and the `run` tokens before it also occurred this many tokens earlier.
    period: usize,
    run: usize,
}

impl Repetition {
    /// Notes the hash of token `now`; `again` says whether the token a period earlier has the same one.
    fn note(&mut self, now: usize, hash: u64, again: bool) {
        let before = self.latest.insert(hash, now);
        if again {
            self.run += 1;
        } else {
            self.period = before.map_or(0, |number| now - number);
            self.run = usize::from(self.period > 0);
        }
        if self.period > LONGEST {
            (self.period, self.run) = (0, 0);
        }
    }

    fn reset(&mut self) {
        self.latest.clear();
        (self.period, self.run) = (0, 0);
    }

    /// The latest tokens are a round that came often enough.
    fn is_found(&self) -> bool {
        self.period > 0 && self.run >= AGAIN * self.period
    }
}

/// A round that is expected.
struct Round {
    tokens: Vec<Token>,
    /// The next one.
    at: usize,
    /// The first that is held, up to `at`.
    held: usize,
    /// The graphs, by their first launch, and whether launches of it may be fused.
    graphs: Vec<((usize, bool), Arc<CapturedGraph>)>,
    number: u64,
    /// Its arrays that are different ones in each round.
    temporaries: Option<Temporaries>,
}

/// Launches to submit one by one.
pub(super) type Held = Vec<Arc<CapturedLaunch>>;

/// The treatment of a launch.
pub(super) enum Expected {
    /// It is held.
    Held,
    /// Nothing else is held, and its graph is the launch itself, which must be made.
    Alone,
    /// It completes the held launches to a graph, which must be launched.
    Complete(Arc<CapturedGraph>),
    /// It completes these launches to a graph, which must be made.
    Make(GraphId, Held),
    /// The same for a graph that must not use these temporaries, and is then ready.
    Prepare(GraphId, Held, Vec<u64>),
    /// It was not expected: the held launches must be submitted first.
    Not(Held),
}

impl CapturedLaunch {
    fn is(&self, kernel: &LoadedKernel, args: &[u64]) -> bool {
        self.kernel.module == kernel.module && *self.args == *args
    }
}

/// The hashes of a launch: by all arguments, and by those besides memory if requested.
fn hashes_of(kernel: &LoadedKernel, args: &[u64], besides_memory: bool) -> [u64; 2] {
    // Cuts have 0.
    let all = hash_of(iter::once(kernel.module.0).chain(args.iter().copied())) | 1;
    if !besides_memory {
        return [all, 0];
    }
    let is_memory = |slot: usize| kernel.pointers.iter().any(|p| p.slot as usize == slot);
    let others = args.iter().enumerate().filter(|(slot, _)| !is_memory(*slot)).map(|(_, word)| *word);
    [all, hash_of(iter::once(kernel.module.0).chain(others)) | 1]
}

impl History {
    /// No launch is expected, and none must be launched before others.
    #[inline]
    pub(super) fn is_free(&self) -> bool {
        self.round.is_none() && self.ready.is_none()
    }

    /// Takes a launch if it is the expected one. `fuses` says whether launches may be fused. `capture` yields the
    /// launch with its memory.
    pub(super) fn take(
        &mut self,
        (kernel, args): (&LoadedKernel, &[u64]),
        fuses: bool,
        capture: impl FnOnce() -> Option<CapturedLaunch>,
    ) -> Expected {
        let Some(round) = &mut self.round else { return Expected::Not(Held::new()) };
        let Token::Launch(expected) = &round.tokens[round.at] else {
            // Nothing is held here. A launch that stays on the default stream is the cut.
            return Expected::Not(Held::new());
        };
        let is_expected = match &mut round.temporaries {
            None => expected.is(kernel, args),
            Some(temporaries) => fuses && capture().is_some_and(|launch| temporaries.take(round.at, expected, launch)),
        };
        if !is_expected {
            return Expected::Not(self.give_up());
        }
        round.at += 1;
        if matches!(round.tokens.get(round.at), Some(Token::Launch(_))) {
            return Expected::Held;
        }
        let is_alone = round.at - round.held == 1 && !fuses;
        let id = GraphId { round: round.number, at: (round.held, fuses) };
        let known = round.graphs.iter().find(|(at, _)| *at == id.at).map(|(_, graph)| graph);
        let expected = match (&mut round.temporaries, known) {
            // A graph would only cost more. The first one is made for the report.
            (None, Some(_)) if is_alone => Expected::Alone,
            (None, Some(graph)) => Expected::Complete(graph.clone()),
            (None, None) => Expected::Make(id, round.launches()),
            (Some(temporaries), known) => {
                let (launches, temporaries) = temporaries.take_run();
                match known.cloned() {
                    Some(graph) => {
                        self.ready = Some(Ready { id, graph, made: None, launches, temporaries });
                        Expected::Held
                    }
                    None => Expected::Prepare(id, launches, temporaries),
                }
            }
        };
        round.begin_run();
        expected
    }

    /// The round that a graph is of is still expected.
    pub(super) fn expects(&self, id: GraphId) -> bool {
        self.round.as_ref().is_some_and(|round| round.number == id.round)
    }

    /// Keeps a graph for the next time, unless another round is expected meanwhile.
    pub(super) fn keep_graph(&mut self, id: GraphId, graph: Arc<CapturedGraph>) {
        if let Some(round) = self.round.as_mut().filter(|round| round.number == id.round) {
            round.graphs.retain(|(at, _)| *at != id.at);
            round.graphs.push((id.at, graph));
        }
    }

    /// Notes a launch that was submitted. `capture` yields it with its memory.
    pub(super) fn note(
        &mut self,
        (kernel, args): (&LoadedKernel, &[u64]),
        fuses: bool,
        capture: impl FnOnce() -> CapturedLaunch,
    ) {
        if self.round.is_some() {
            // A cut was expected in its place.
            self.give_up();
        }
        self.fuses = fuses;
        let hashes = hashes_of(kernel, args, fuses);
        self.note_hashes(hashes);
        // Temporaries are found in all the latest launches.
        let is_kept = fuses || self.exact.period > 0;
        let token = if is_kept { Token::Launch(Arc::new(capture())) } else { Token::NewLaunch };
        self.push(hashes, token);
    }

    /// All launches must be submitted now. Yields those that were held.
    pub(super) fn cut(&mut self) -> Held {
        let Some(round) = &mut self.round else {
            if matches!(self.tokens.back(), Some(Noted { token: Token::Launch(_) | Token::NewLaunch, .. })) {
                self.note_hashes([0; 2]);
                self.push([0; 2], Token::Cut);
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
        self.reset();
        held
    }

    fn reset(&mut self) {
        self.tokens.clear();
        (self.first, self.round) = (0, None);
        (self.fuses, self.misses, self.pause) = (false, 0, 0);
        self.exact.reset();
        self.besides_memory.reset();
    }

    /// Looks for repetition with the hashes of the next token.
    fn note_hashes(&mut self, hashes: [u64; 2]) {
        let now = self.first + self.tokens.len();
        let repetitions = [&mut self.exact, &mut self.besides_memory].into_iter().enumerate();
        for (n, repetition) in repetitions.take(1 + usize::from(self.fuses)) {
            let before = now.checked_sub(repetition.period).and_then(|number| number.checked_sub(self.first));
            let known = before.and_then(|at| self.tokens.get(at));
            let again = repetition.period > 0 && known.is_some_and(|known| known.hashes[n] == hashes[n]);
            repetition.note(now, hashes[n], again);
        }
    }

    fn push(&mut self, hashes: [u64; 2], token: Token) {
        self.tokens.push_back(Noted { hashes, token });
        if self.exact.is_found() {
            self.expect_round();
        } else if self.fuses && self.besides_memory.is_found() {
            self.expect_round_with_temporaries();
        }
        if self.tokens.len() > (AGAIN + 2) * LONGEST {
            self.forget_oldest();
        }
    }

    /// The latest tokens, if they are a round that came often enough: another one is expected.
    fn expect_round(&mut self) {
        let period = self.exact.period;
        let round = self.last_tokens(period);
        // Tokens of equal hashes a period ago have equal arguments only most likely.
        let same = |(a, b): (&Token, &Noted)| match (a, &b.token) {
            (Token::Launch(a), Token::Launch(b)) => a.is(&b.kernel, &b.args),
            (Token::Cut, Token::Cut) => true,
            _ => false,
        };
        let earlier = self.tokens.iter().skip(self.tokens.len() - 2 * period);
        if round.iter().zip(earlier).all(same) {
            self.expect(round, None);
        }
    }

    /// The same for rounds that differ in arrays that each round allocates anew.
    #[cold]
    fn expect_round_with_temporaries(&mut self) {
        if self.pause > 0 {
            self.pause -= 1;
            return;
        }
        let period = self.besides_memory.period;
        let entry = |noted: &Noted| match &noted.token {
            Token::Launch(launch) => Some(launch.clone()),
            Token::Cut | Token::NewLaunch => None,
        };
        // A round more, which must not use the temporaries.
        let others = self.tokens.len().saturating_sub(4 * period);
        let history: Vec<Option<Arc<CapturedLaunch>>> = self.tokens.iter().skip(others).map(entry).collect();
        let history: Vec<Option<&Arc<CapturedLaunch>>> = history.iter().map(Option::as_ref).collect();
        let Some(temporaries) = Temporaries::find(&history, period) else {
            // The next token may be the end of a round.
            self.misses += 1;
            if self.misses.is_multiple_of(period) {
                self.pause = 8 * period;
            }
            return;
        };
        let without = |token: Token| match token {
            Token::Launch(launch) => {
                let (kernel, args) = (launch.kernel.clone(), launch.args.clone());
                let (arrays, buffers) = (Box::default(), temporaries.others_of(&launch));
                Token::Launch(Arc::new(CapturedLaunch { kernel, args, arrays, buffers, foreign: false, store: None }))
            }
            other => other,
        };
        let round = self.last_tokens(period).into_iter().map(without).collect();
        self.expect(round, Some(temporaries));
    }

    fn last_tokens(&self, count: usize) -> Vec<Token> {
        self.tokens.iter().skip(self.tokens.len() - count).map(|noted| noted.token.clone()).collect()
    }

    fn expect(&mut self, round: Vec<Token>, temporaries: Option<Temporaries>) {
        let number = self.rounds + 1;
        self.reset();
        self.rounds = number;
        self.round = Some(Round::new((round, temporaries), number));
    }

    fn forget_oldest(&mut self) {
        while self.tokens.len() > (AGAIN + 1) * LONGEST {
            self.tokens.pop_front();
            self.first += 1;
        }
        let first = self.first;
        for repetition in [&mut self.exact, &mut self.besides_memory] {
            repetition.latest.retain(|_, number| *number >= first);
        }
    }
}

impl Round {
    /// A round whose first token is expected next. It is rotated to begin after a cut, because launches of a run become
    /// one graph only within the round.
    fn new((mut tokens, mut temporaries): (Vec<Token>, Option<Temporaries>), number: u64) -> Round {
        let cut = tokens.iter().rposition(|t| matches!(t, Token::Cut));
        let after = cut.map_or(0, |cut| (cut + 1) % tokens.len());
        tokens.rotate_left(after);
        temporaries.iter_mut().for_each(|temporaries| temporaries.rotate(after));
        let at = (tokens.len() - after) % tokens.len();
        Round { tokens, at, held: at, graphs: Vec::new(), number, temporaries }
    }

    /// Those that are held.
    fn launches(&self) -> Held {
        if let Some(temporaries) = &self.temporaries {
            return temporaries.held.clone();
        }
        let launch = |t: &Token| match t {
            Token::Launch(launch) => Some(launch.clone()),
            Token::Cut | Token::NewLaunch => None,
        };
        self.tokens[self.held..self.at].iter().filter_map(launch).collect()
    }

    /// Starts to hold launches again.
    fn begin_run(&mut self) {
        if self.at == self.tokens.len() {
            self.at = 0;
            self.temporaries.iter_mut().for_each(Temporaries::begin_round);
        }
        self.held = self.at;
    }
}

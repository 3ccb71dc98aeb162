//! Runs every interleaving of a few threads at their atomic accesses, up to a number of preemptions.
//!
//! Owns the baton: one thread runs at a time, and at each atomic access of the locks the explorer decides who goes
//! on. The decisions of a run are a path in a tree that is searched depth first. A run in which all unfinished
//! threads sleep is a lost wake-up, and is reported with its path. (All accesses are sequentially consistent, so that
//! interleavings are all there is to see.)

use std::cell::RefCell;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

thread_local! {
    static ME: RefCell<Option<(Arc<Baton>, usize)>> = const { RefCell::new(None) };
}

/// A point where another thread may go on.
pub(super) fn step() {
    if std::thread::panicking() {
        // A failed run drops its guards; who goes on no longer matters.
        return;
    }
    let me = ME.with_borrow(Clone::clone);
    if let Some((baton, id)) = me {
        baton.step(id);
    }
}

/// Sleeps until the thread's waker was called (since it last slept).
pub(super) fn sleep() {
    let me = ME.with_borrow(Clone::clone);
    let (baton, id) = me.expect("only threads of an exploration sleep");
    baton.sleep(id);
}

/// Who runs.
pub(super) struct Baton {
    state: Mutex<State>,
    /// For each thread; one alone is woken, for most of the time goes into waking.
    moved: [Condvar; MAX_THREADS],
}

const MAX_THREADS: usize = 4;

struct State {
    running: usize,
    threads: Vec<Thread>,
    /// Choices to repeat, then 0.
    script: Vec<usize>,
    /// Choices made: which of how many.
    path: Vec<(usize, usize)>,
    preemptions: usize,
    stuck: bool,
}

#[derive(Clone, Copy, Default)]
struct Thread {
    asleep: bool,
    woken: bool,
    finished: bool,
}

impl Baton {
    /// Wakes thread `id`; what its waker does.
    pub(super) fn wake(&self, id: usize) {
        let mut state = self.state();
        state.threads[id].woken = true;
        state.threads[id].asleep = false;
    }

    /// A thread that fails does so with the lock held; the others go on to their own failure.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn step(&self, id: usize) {
        let mut state = self.state();
        let may_switch = state.preemptions > 0;
        let mut options = vec![id];
        if may_switch {
            options.extend(state.enabled().filter(|&other| other != id));
        }
        let next = state.choose(&options);
        if next != id {
            state.preemptions -= 1;
            self.hand_over(state, next, id);
        }
    }

    fn sleep(&self, id: usize) {
        let mut state = self.state();
        if !state.threads[id].woken {
            state.threads[id].asleep = true;
            self.pass_on(state, Some(id));
            state = self.state();
        }
        state.threads[id].woken = false;
    }

    fn finish(&self, id: usize) {
        let mut state = self.state();
        state.threads[id].finished = true;
        self.pass_on(state, None);
    }

    /// Lets somebody else go on, because this thread can't.
    fn pass_on(&self, mut state: MutexGuard<'_, State>, id: Option<usize>) {
        let options: Vec<_> = state.enabled().collect();
        if options.is_empty() {
            state.stuck = state.threads.iter().any(|thread| !thread.finished);
            self.moved.iter().for_each(Condvar::notify_one);
            assert!(!state.stuck, "all sleep");
            return;
        }
        let next = state.choose(&options);
        match id {
            Some(id) => self.hand_over(state, next, id),
            None => {
                state.running = next;
                self.moved[next].notify_one();
            }
        }
    }

    fn hand_over(&self, mut state: MutexGuard<'_, State>, next: usize, id: usize) {
        state.running = next;
        self.moved[next].notify_one();
        let state = self.moved[id]
            .wait_while(state, |state| state.running != id && !state.stuck)
            .unwrap_or_else(PoisonError::into_inner);
        assert!(!state.stuck, "all sleep");
    }

    /// Ends the run, because a thread failed.
    fn give_up(&self) {
        self.state().stuck = true;
        self.moved.iter().for_each(Condvar::notify_one);
    }

    fn enter(self: &Arc<Self>, id: usize) {
        ME.set(Some((Arc::clone(self), id)));
        let state = self.state();
        let state = self.moved[id].wait_while(state, |state| state.running != id && !state.stuck);
        drop(state.unwrap_or_else(PoisonError::into_inner));
    }
}

impl State {
    fn enabled(&self) -> impl Iterator<Item = usize> + '_ {
        self.threads
            .iter()
            .enumerate()
            .filter(|(_, thread)| !thread.asleep && !thread.finished)
            .map(|(id, _)| id)
    }

    fn choose(&mut self, options: &[usize]) -> usize {
        let choice = self.script.get(self.path.len()).copied().unwrap_or(0);
        self.path.push((choice, options.len()));
        options[choice]
    }
}

/// Runs the threads that `make` gives in all interleavings with up to `preemptions` preemptions; returns how many
/// there were. `make` gets the baton for its wakers.
pub(super) fn explore(
    preemptions: usize,
    make: impl Fn(&Arc<Baton>) -> Vec<Box<dyn FnOnce() + Send>>,
) -> usize {
    let mut script = Vec::new();
    let mut runs = 0;
    loop {
        let baton = Arc::new(Baton {
            state: Mutex::new(State {
                running: usize::MAX,
                threads: Vec::new(),
                script: script.clone(),
                path: Vec::new(),
                preemptions,
                stuck: false,
            }),
            moved: Default::default(),
        });
        let bodies = make(&baton);
        baton.state().threads = vec![Thread::default(); bodies.len()];
        let threads: Vec<_> = bodies
            .into_iter()
            .enumerate()
            .map(|(id, body)| {
                let baton = Arc::clone(&baton);
                std::thread::spawn(move || {
                    baton.enter(id);
                    let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
                    if failed.is_err() {
                        baton.give_up();
                    }
                    assert!(failed.is_ok(), "thread {id} failed");
                    baton.finish(id);
                })
            })
            .collect();
        {
            let mut state = baton.state();
            let options: Vec<_> = state.enabled().collect();
            state.running = state.choose(&options);
            baton.moved[state.running].notify_one();
        }
        let results: Vec<_> = threads.into_iter().map(std::thread::JoinHandle::join).collect();
        let path = baton.state().path.clone();
        assert!(results.iter().all(Result::is_ok), "run {runs} failed; its choices: {path:?}");
        runs += 1;
        let Some(last) = path.iter().rposition(|&(choice, options)| choice + 1 < options) else {
            return runs;
        };
        script = path[..last].iter().map(|&(choice, _)| choice).collect();
        script.push(path[last].0 + 1);
    }
}

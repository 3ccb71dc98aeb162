//! Exclusion, order and wake-up of range locks.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use proptest::prelude::*;

use super::explore::{Baton, explore, sleep, step};
use super::*;

fn no_waker(locks: &Arc<RangeLocks>) -> WakerId {
    let waker: Waker = Arc::new(|| ());
    locks.register_waker(&waker).unwrap()
}

#[test]
fn readers_share_and_a_writer_is_alone() {
    let locks = RangeLocks::new(1000);
    let one = locks.try_lock(0, 10, Mode::Read).unwrap();
    let two = locks.try_lock(5, 10, Mode::Read).unwrap();
    assert!(locks.try_lock(14, 1, Mode::Write).is_none());
    assert!(locks.try_lock(9, 100, Mode::Write).is_none());
    let beside = locks.try_lock(15, 985, Mode::Write).unwrap();
    assert!(locks.try_lock(999, 1, Mode::Read).is_none());
    drop((one, two, beside));
    assert!(locks.try_lock(0, 1000, Mode::Write).is_some());
}

#[test]
fn a_range_larger_than_the_table_is_the_whole_volume() {
    let locks = RangeLocks::new(1 << 40);
    let all = locks.try_lock(0, 1 << 40, Mode::Write).unwrap();
    assert!(locks.try_lock(12_345_678, 1, Mode::Read).is_none());
    drop(all);
    let far = locks.try_lock((1 << 40) - 3, 3, Mode::Read).unwrap();
    assert!(locks.try_lock(7, 1 << 39, Mode::Write).is_none());
    drop(far);
    assert!(locks.try_lock(7, 1 << 39, Mode::Write).is_some());
}

#[test]
fn a_block_takes_254_readers_and_the_next_waits() {
    let locks = RangeLocks::new(64);
    let waker = no_waker(&locks);
    let mut readers: Vec<_> = (0..254).map(|_| locks.try_lock(3, 2, Mode::Read).unwrap()).collect();
    assert!(locks.try_lock(2, 2, Mode::Read).is_none());
    assert!(locks.try_lock(2, 1, Mode::Read).is_some());
    let Lock::Waiting(mut wait) = locks.lock(4, 1, Mode::Read, waker) else { panic!("the block is full") };
    readers.pop();
    assert!(wait.poll().is_some());
}

#[test]
fn a_waiting_writer_is_not_overtaken_by_readers() {
    let locks = RangeLocks::new(64);
    let waker = no_waker(&locks);
    let reader = locks.try_lock(0, 8, Mode::Read).unwrap();
    let Lock::Waiting(mut writer) = locks.lock(4, 8, Mode::Write, waker) else { panic!("a reader is there") };
    assert!(locks.try_lock(0, 8, Mode::Read).is_none());
    assert!(locks.try_lock(0, 4, Mode::Read).is_some(), "blocks that nobody waits for are free to read");
    assert!(writer.poll().is_none());
    drop(reader);
    assert!(locks.try_lock(11, 1, Mode::Read).is_none());
    let held = writer.poll().unwrap();
    assert!(locks.try_lock(4, 1, Mode::Read).is_none());
    drop(held);
    assert!(locks.try_lock(4, 1, Mode::Read).is_some());
}

#[test]
fn those_who_wait_for_the_same_blocks_go_in_order() {
    let locks = RangeLocks::new(64);
    let waker = no_waker(&locks);
    let held = locks.try_lock(0, 1, Mode::Write).unwrap();
    let mut waits: Vec<_> = (0..5)
        .map(|_| match locks.lock(0, 1, Mode::Write, waker) {
            Lock::Waiting(wait) => wait,
            Lock::Held(_) => panic!("it is held"),
        })
        .collect();
    drop(held);
    while !waits.is_empty() {
        assert!(waits.iter_mut().skip(1).all(|wait| wait.poll().is_none()));
        assert!(waits.remove(0).poll().is_some());
    }
}

#[test]
fn giving_up_lets_those_behind_go() {
    let locks = RangeLocks::new(64);
    let woken = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&woken);
    let waker: Waker = Arc::new(move || {
        count.fetch_add(1, Ordering::SeqCst);
    });
    let waker = locks.register_waker(&waker).unwrap();
    let reader = locks.try_lock(0, 1, Mode::Read).unwrap();
    let Lock::Waiting(writer) = locks.lock(0, 1, Mode::Write, waker) else { panic!("a reader is there") };
    let Lock::Waiting(mut behind) = locks.lock(0, 1, Mode::Read, waker) else { panic!("a writer waits") };
    drop(writer);
    assert_eq!(woken.load(Ordering::SeqCst), 1);
    assert!(behind.poll().is_some());
    drop(reader);
}

#[test]
fn more_waits_than_places_all_get_their_turn() {
    let locks = RangeLocks::with_shape(1, 2);
    let woken = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&woken);
    let waker: Waker = Arc::new(move || flag.store(true, Ordering::SeqCst));
    let waker = locks.register_waker(&waker).unwrap();
    let mut held = locks.try_lock(0, 1, Mode::Write);
    let mut waits: Vec<_> = (0..6)
        .map(|_| match locks.lock(0, 1, Mode::Write, waker) {
            Lock::Waiting(wait) => wait,
            Lock::Held(_) => panic!("it is held"),
        })
        .collect();
    woken.store(false, Ordering::SeqCst);
    while !waits.is_empty() {
        drop(held.take());
        assert!(woken.swap(false, Ordering::SeqCst), "a release wakes");
        // All are polled after each wake-up; the first that gets it ends the round.
        while held.is_none() {
            waits.retain_mut(|wait| {
                let guard = wait.poll();
                let keep = guard.is_none();
                held = held.take().or(guard);
                keep
            });
        }
    }
}

#[test]
fn only_so_many_wakers_are_taken() {
    let locks = RangeLocks::new(1);
    let wakers: Vec<Waker> = (0..257).map(|_| Arc::new(|| ()) as Waker).collect();
    let (last, others) = wakers.split_last().unwrap();
    let names: Vec<_> = others.iter().map(|waker| locks.register_waker(waker).unwrap()).collect();
    assert!((1..256).all(|index| !names[..index].contains(&names[index])));
    assert!(locks.register_waker(last).is_none());
    // One that is known keeps its name, and takes no other.
    assert!(others.iter().zip(&names).all(|(waker, name)| locks.register_waker(waker) == Some(*name)));
}

#[test]
fn a_guard_says_what_it_covers() {
    let (locks, other) = (RangeLocks::new(64), RangeLocks::new(64));
    let guard = locks.try_lock(10, 5, Mode::Read).unwrap();
    assert!(guard.covers(&locks, 10, 5, Mode::Read));
    assert!(guard.covers(&locks, 12, 3, Mode::Read));
    assert!(!guard.covers(&locks, 12, 4, Mode::Read));
    assert!(!guard.covers(&locks, 9, 1, Mode::Read));
    assert!(!guard.covers(&locks, 16, 0, Mode::Read));
    assert!(!guard.covers(&locks, 10, u64::MAX, Mode::Read));
    assert!(!guard.covers(&locks, 10, 5, Mode::Write));
    assert!(!guard.covers(&other, 10, 5, Mode::Read));
}

proptest! {
    /// The oracle: a list of what is held.
    #[test]
    fn what_is_granted_is_what_conflicts_with_nothing_held(
        steps in proptest::collection::vec((0_u64..100, 1_u64..40, 0..3, any::<prop::sample::Index>()), 1..200),
    ) {
        let locks = RangeLocks::new(256);
        let mut held: Vec<(u64, u64, Mode, RangeGuard)> = Vec::new();
        for (slba, blocks, kind, which) in steps {
            let mode = match kind {
                0 => Mode::Read,
                1 => Mode::Write,
                _ => {
                    if !held.is_empty() {
                        held.swap_remove(which.index(held.len()));
                    }
                    continue;
                }
            };
            let free = held.iter().all(|&(other, length, theirs, _)| {
                (mode, theirs) == (Mode::Read, Mode::Read) || other + length <= slba || slba + blocks <= other
            });
            let guard = locks.try_lock(slba, blocks, mode);
            prop_assert_eq!(guard.is_some(), free);
            held.extend(guard.map(|guard| (slba, blocks, mode, guard)));
        }
        drop(held);
        prop_assert!(locks.try_lock(0, 256, Mode::Write).is_some());
    }

    #[test]
    fn intervals_meet_if_and_only_if_they_share_a_lane(
        a in 0_u64..16, b in 0_u64..16, a_length in 0_u64..=16, b_length in 0_u64..=16,
    ) {
        let set = |start: u64, length: u64| (0..length).fold(0_u32, |set, lane| set | 1 << ((start + lane) % 16));
        let meets = Lanes { start: a, length: a_length }.meets(Lanes { start: b, length: b_length }, 16);
        prop_assert_eq!(meets, set(a, a_length) & set(b, b_length) != 0);
    }

    #[test]
    fn a_word_has_room_if_and_only_if_each_lane_has(word: [u8; 8], mask: u8) {
        let lanes = (0..8).filter(|lane| mask >> lane & 1 == 1);
        let wide = lanes.clone().fold(0, |wide, lane| wide | 0xFF_u64 << (8 * lane));
        prop_assert_eq!(has_room(u64::from_le_bytes(word), wide), lanes.clone().all(|lane| word[lane] < 254));
    }
}

/// What threads of an exploration do with a range.
#[derive(Clone, Copy)]
enum Act {
    Take(u64, u64, Mode),
    /// Waits once, then gives up.
    Abandon(u64, u64, Mode),
    /// Reads until somebody wants the range, or the others are done.
    Keep(u64, u64),
}

/// One word, `waits` places; each thread takes its ranges in turn while a model of the blocks watches.
fn threads(baton: &Arc<Baton>, waits: usize, acts: &[&[Act]]) -> Vec<Box<dyn FnOnce() + Send>> {
    let locks = RangeLocks::with_shape(2, waits);
    let blocks: Arc<Vec<AtomicI64>> = Arc::new((0..16).map(|_| AtomicI64::new(0)).collect());
    let mut bodies: Vec<Box<dyn FnOnce() + Send>> = Vec::new();
    let keepers = acts.iter().filter(|acts| acts.iter().any(|act| matches!(act, Act::Keep(..)))).count();
    let others = Arc::new(AtomicUsize::new(acts.len() - keepers));
    let threads = acts.len();
    for (id, acts) in acts.iter().enumerate() {
        let wakes = Arc::clone(baton);
        let waker: Waker = Arc::new(move || wakes.wake(id));
        let waker = locks.register_waker(&waker).unwrap();
        let (locks, blocks, acts) = (Arc::clone(&locks), Arc::clone(&blocks), acts.to_vec());
        let (others, baton) = (Arc::clone(&others), Arc::clone(baton));
        let keeper = acts.iter().any(|act| matches!(act, Act::Keep(..)));
        if keeper {
            locks.hold_long(waker);
        }
        bodies.push(Box::new(move || {
            for act in acts {
                let (slba, length, mode) = match act {
                    Act::Take(slba, length, mode) | Act::Abandon(slba, length, mode) => (slba, length, mode),
                    Act::Keep(slba, length) => (slba, length, Mode::Read),
                };
                let guard = match locks.lock(slba, length, mode, waker) {
                    Lock::Held(guard) => guard,
                    Lock::Waiting(_) if matches!(act, Act::Abandon(..)) => continue,
                    Lock::Waiting(mut wait) => loop {
                        sleep();
                        if let Some(guard) = wait.poll() {
                            break guard;
                        }
                    },
                };
                let range = usize::try_from(slba).unwrap()..usize::try_from(slba + length).unwrap();
                for block in &blocks[range.clone()] {
                    match mode {
                        Mode::Read => assert!(block.fetch_add(1, Ordering::SeqCst) >= 0),
                        Mode::Write => assert_eq!(block.fetch_sub(1, Ordering::SeqCst), 0),
                    }
                }
                step();
                if let Act::Keep(..) = act {
                    while !guard.is_wanted() && others.load(Ordering::SeqCst) > 0 {
                        sleep();
                    }
                }
                for block in &blocks[range] {
                    match mode {
                        Mode::Read => block.fetch_sub(1, Ordering::SeqCst),
                        Mode::Write => block.fetch_add(1, Ordering::SeqCst),
                    };
                }
                drop(guard);
            }
            if !keeper {
                others.fetch_sub(1, Ordering::SeqCst);
                (0..threads).for_each(|id| baton.wake(id));
            }
        }));
    }
    bodies
}

#[test]
fn no_interleaving_of_two_threads_breaks_exclusion_or_loses_a_wakeup() {
    use Mode::{Read, Write};
    let cases: [&[&[Act]]; 4] = [
        &[&[Act::Take(0, 4, Write), Act::Take(2, 4, Write)], &[Act::Take(3, 2, Write)]],
        &[&[Act::Take(6, 4, Write)], &[Act::Take(7, 2, Read), Act::Take(8, 1, Read)]],
        // Beyond the table's end and around it: the two lie in other blocks and the same lanes.
        &[&[Act::Take(12, 4, Write)], &[Act::Take(0, 16, Read)]],
        &[&[Act::Take(0, 2, Write)], &[Act::Abandon(1, 1, Write), Act::Take(0, 1, Read)]],
    ];
    for acts in cases {
        let runs = explore(3, |baton| threads(baton, 2, acts));
        assert!(runs > 100, "{runs} interleavings");
    }
}

#[test]
fn no_interleaving_of_three_threads_breaks_exclusion_or_loses_a_wakeup() {
    use Mode::{Read, Write};
    let cases: [&[&[Act]]; 3] = [
        &[&[Act::Take(0, 2, Write)], &[Act::Take(1, 2, Write)], &[Act::Take(0, 3, Read)]],
        &[&[Act::Take(0, 2, Read)], &[Act::Abandon(1, 1, Write)], &[Act::Take(1, 1, Read)]],
        &[&[Act::Take(7, 2, Write)], &[Act::Take(7, 1, Write)], &[Act::Take(8, 1, Write)]],
    ];
    for acts in cases {
        // One place for two that wait: the second has none.
        for waits in [1, 2] {
            let runs = explore(2, |baton| threads(baton, waits, acts));
            assert!(runs > 100, "{runs} interleavings");
        }
    }
}

#[test]
fn who_holds_a_range_for_long_learns_of_everybody_who_waits_for_it() {
    use Mode::{Read, Write};
    let cases: [&[&[Act]]; 4] = [
        &[&[Act::Keep(0, 4)], &[Act::Take(2, 4, Write)]],
        &[&[Act::Keep(0, 2), Act::Keep(1, 2)], &[Act::Take(0, 3, Write)]],
        &[&[Act::Keep(0, 2)], &[Act::Take(1, 1, Write)], &[Act::Take(0, 1, Read)]],
        // One place for two that wait.
        &[&[Act::Keep(0, 2)], &[Act::Take(1, 1, Write)], &[Act::Take(0, 2, Write)]],
    ];
    for acts in cases {
        // Two preemptions of three threads were tried as well; they take a minute.
        let preemptions = if acts.len() == 2 { 2 } else { 1 };
        for waits in [1, 2] {
            let runs = explore(preemptions, |baton| threads(baton, waits, acts));
            assert!(runs > 20, "{runs} interleavings");
        }
    }
}

#[test]
fn a_guard_is_wanted_by_those_that_wait_for_its_blocks() {
    let locks = RangeLocks::new(64);
    let waker = no_waker(&locks);
    let reader = locks.try_lock(0, 8, Mode::Read).unwrap();
    let other = locks.try_lock(8, 8, Mode::Read).unwrap();
    assert!(!reader.is_wanted());
    let Lock::Waiting(writer) = locks.lock(4, 1, Mode::Write, waker) else { panic!("a reader is there") };
    assert!(reader.is_wanted() && !other.is_wanted());
    let Lock::Waiting(polling) = locks.lock_by_polling(8, 1, Mode::Write) else {
        panic!("a reader is there")
    };
    assert!(other.is_wanted());
    drop((writer, polling));
    assert!(!reader.is_wanted() && !other.is_wanted());
    // As many readers as there can be: the next one waits, and wants one of them to go.
    let mut readers: Vec<_> = (0..254).map(|_| locks.try_lock(30, 1, Mode::Read).unwrap()).collect();
    let Lock::Waiting(mut next) = locks.lock(30, 1, Mode::Read, waker) else { panic!("the block is full") };
    assert!(readers[0].is_wanted() && !reader.is_wanted());
    readers.pop();
    assert!(next.poll().is_some());
}

#[test]
fn threads_that_hammer_overlapping_ranges_exclude_each_other() {
    let locks = RangeLocks::new(256);
    let blocks: Arc<Vec<AtomicI64>> = Arc::new((0..256).map(|_| AtomicI64::new(0)).collect());
    std::thread::scope(|scope| {
        for seed in 1_u64..=4 {
            let (locks, blocks) = (&locks, &blocks);
            scope.spawn(move || {
                let me = std::thread::current();
                let waker: Waker = Arc::new(move || me.unpark());
                let waker = locks.register_waker(&waker).unwrap();
                let mut random = seed;
                for _ in 0..20_000 {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(seed);
                    let (slba, length) = ((random >> 33) % 240, 1 + (random >> 45) % 16);
                    let mode = if random >> 60 < 8 { Mode::Read } else { Mode::Write };
                    let guard = match locks.lock(slba, length, mode, waker) {
                        Lock::Held(guard) => guard,
                        Lock::Waiting(mut wait) => loop {
                            // A lost wake-up would show as this test taking minutes.
                            std::thread::park_timeout(Duration::from_secs(20));
                            if let Some(guard) = wait.poll() {
                                break guard;
                            }
                        },
                    };
                    let range = usize::try_from(slba).unwrap()..usize::try_from(slba + length).unwrap();
                    for block in &blocks[range.clone()] {
                        match mode {
                            Mode::Read => assert!(block.fetch_add(1, Ordering::Relaxed) >= 0),
                            Mode::Write => assert_eq!(block.fetch_sub(1, Ordering::Relaxed), 0),
                        }
                    }
                    for block in &blocks[range] {
                        match mode {
                            Mode::Read => block.fetch_sub(1, Ordering::Relaxed),
                            Mode::Write => block.fetch_add(1, Ordering::Relaxed),
                        };
                    }
                    drop(guard);
                }
            });
        }
    });
}

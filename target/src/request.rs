//! The life of a request: which steps a command takes, in which order, and where it stands.
//!
//! A command's steps are a constant table per kind of command; the transport executes the step that [`Progress`] points
//! at and says how it went. Steps that wait (for a buffer, credits, a range, the host, the medium) are resumed by the
//! event they wait for. Nothing here does I/O, and no step is decided elsewhere.

/// One step of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// Take the buffers that the command needs.
    TakeBuffers,
    /// Bring the host's data into the buffer: RDMA READs, or a copy out of the capsule.
    Fetch,
    /// Check the host's protection information, or generate it.
    ProtectFromHost,
    /// Hold the blocks of the current part against others.
    LockRange,
    /// Medium to buffer.
    ReadMedium,
    /// Wait, where the medium's memory is going to be looked at, until it is brought near the processor while another command's
    /// is looked at.
    PrefetchMedium,
    /// Use the medium's memory as it lies there; tuples to the buffer.
    UseMedium,
    /// Buffer to medium.
    WriteMedium,
    /// Zero blocks on the medium, with the metadata in the buffer.
    ZeroMedium,
    /// Give blocks of the medium back.
    DeallocateMedium,
    /// Make what was written durable.
    FlushMedium,
    /// Let the blocks of the current part go.
    UnlockRange,
    /// Check the medium's protection information.
    CheckFromMedium,
    /// Compare host and medium.
    Compare,
    /// Carry out what is not about blocks, or make the first part ready.
    Execute,
    /// Go on with the next part of the command, if there is one, at the step with this index.
    NextPart(usize),
    /// Buffer to host, and the response behind it.
    SendData,
    /// The response alone.
    Respond,
}

/// The kinds of command that have different steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// NVM Read.
    Read,
    /// NVM Read of blocks whose data lies in memory and is sent from there.
    ReadInPlace,
    /// NVM Write.
    Write,
    /// NVM Compare.
    Compare,
    /// NVM Verify.
    Verify,
    /// NVM Write Zeroes.
    WriteZeroes,
    /// NVM Write Zeroes that deallocates.
    Deallocate,
    /// NVM Dataset Management with deallocation: a list of ranges, one part each.
    DatasetManagement,
    /// SCSI WRITE AND VERIFY, with or without comparing.
    WriteVerify,
    /// SCSI COMPARE AND WRITE: the blocks are held from the look at them until they are written.
    CompareAndWrite,
    /// SCSI WRITE SAME: one block from the host for all, one part after another.
    WriteSame,
    /// SCSI UNMAP: a list of extents, one part each.
    Unmap,
    /// SCSI PERSISTENT RESERVE OUT that ends commands of others, and waits for them.
    Settle,
    /// NVM Flush.
    Flush,
    /// Fabrics Property Set: a shutdown notification flushes volumes, one part each.
    PropertySet,
    /// Admin or Fabrics command without data.
    Plain,
    /// Admin or Fabrics command with data from the host.
    FromHost,
    /// Admin command with data to the host.
    ToHost,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 18] = [
        Self::Read,
        Self::ReadInPlace,
        Self::Write,
        Self::Compare,
        Self::Verify,
        Self::WriteZeroes,
        Self::Deallocate,
        Self::DatasetManagement,
        Self::WriteVerify,
        Self::CompareAndWrite,
        Self::WriteSame,
        Self::Unmap,
        Self::Settle,
        Self::Flush,
        Self::PropertySet,
        Self::Plain,
        Self::FromHost,
        Self::ToHost,
    ];

    /// The command's steps, in order. A write reaches the medium only after all of its protection information was checked;
    /// a read reaches the host only after the same. A range is held around the medium, no longer; but a read in place holds
    /// its range until the host has the data, or until somebody wants it: then the data is copied, and the range let go.
    #[must_use]
    pub fn steps(self) -> &'static [Step] {
        use Step::{
            CheckFromMedium, Compare, DeallocateMedium, Execute, Fetch, FlushMedium, LockRange, NextPart,
            PrefetchMedium, ProtectFromHost, ReadMedium, Respond, SendData, TakeBuffers, UnlockRange,
            UseMedium, WriteMedium, ZeroMedium,
        };
        match self {
            Self::Read => &[TakeBuffers, LockRange, ReadMedium, UnlockRange, CheckFromMedium, SendData],
            Self::ReadInPlace => {
                &[TakeBuffers, LockRange, PrefetchMedium, UseMedium, CheckFromMedium, SendData]
            }
            Self::Write => {
                &[TakeBuffers, Fetch, ProtectFromHost, LockRange, WriteMedium, UnlockRange, Respond]
            }
            Self::Compare => &[
                TakeBuffers,
                Fetch,
                ProtectFromHost,
                LockRange,
                ReadMedium,
                UnlockRange,
                CheckFromMedium,
                Compare,
                Respond,
            ],
            Self::Verify => &[TakeBuffers, LockRange, ReadMedium, UnlockRange, CheckFromMedium, Respond],
            Self::WriteZeroes => &[TakeBuffers, ProtectFromHost, LockRange, ZeroMedium, UnlockRange, Respond],
            Self::Deallocate => &[LockRange, DeallocateMedium, UnlockRange, Respond],
            Self::DatasetManagement => {
                &[TakeBuffers, Fetch, Execute, LockRange, DeallocateMedium, UnlockRange, NextPart(3), Respond]
            }
            Self::WriteVerify => &[
                TakeBuffers,
                Fetch,
                ProtectFromHost,
                LockRange,
                WriteMedium,
                ReadMedium,
                UnlockRange,
                CheckFromMedium,
                Compare,
                Respond,
            ],
            Self::CompareAndWrite => &[
                TakeBuffers,
                Fetch,
                ProtectFromHost,
                LockRange,
                ReadMedium,
                CheckFromMedium,
                Compare,
                WriteMedium,
                UnlockRange,
                Respond,
            ],
            Self::WriteSame => &[
                TakeBuffers,
                Fetch,
                ProtectFromHost,
                Execute,
                LockRange,
                WriteMedium,
                UnlockRange,
                NextPart(4),
                Respond,
            ],
            Self::Unmap => &[LockRange, DeallocateMedium, UnlockRange, NextPart(0), Respond],
            Self::Flush => &[FlushMedium, Respond],
            Self::PropertySet => &[Execute, FlushMedium, NextPart(1), Respond],
            Self::Plain | Self::Settle => &[Execute, Respond],
            Self::FromHost => &[TakeBuffers, Fetch, Execute, Respond],
            Self::ToHost => &[TakeBuffers, Execute, SendData],
        }
    }
}

/// Where a request stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    kind: Kind,
    at: usize,
    failed: bool,
}

impl Progress {
    /// At the first step.
    #[must_use]
    pub fn new(kind: Kind) -> Self {
        Self { kind, at: 0, failed: false }
    }

    /// The step to execute now.
    #[must_use]
    pub fn step(&self) -> Step {
        if self.failed { Step::Respond } else { self.kind.steps()[self.at] }
    }

    /// The step is done: go to the next. [`Step::NextPart`] is passed, [`Progress::again`] takes it.
    pub fn done(&mut self) {
        debug_assert!(!self.is_last(), "the response ends a request");
        self.at += 1;
    }

    /// There is another part: go back to where its steps start.
    pub fn again(&mut self) {
        if let Step::NextPart(first) = self.step() {
            self.at = first;
        }
    }

    /// What the host sent failed its check: go back to where it is fetched.
    pub fn fetch_again(&mut self) {
        let fetch = self.kind.steps()[..self.at].iter().rposition(|step| *step == Step::Fetch);
        self.at = fetch.expect("what was checked was fetched before");
    }

    /// The step failed: what is left is the response. The caller has let go of what the steps before took.
    pub fn fail(&mut self) {
        self.failed = true;
    }

    /// Whether a step failed.
    #[must_use]
    pub fn failed(&self) -> bool {
        self.failed
    }

    /// Whether the step to execute sends the response.
    #[must_use]
    pub fn is_last(&self) -> bool {
        matches!(self.step(), Step::SendData | Step::Respond)
    }

    /// The kind of command.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_ends_with_its_only_response() {
        for kind in Kind::ALL {
            let (last, before) = kind.steps().split_last().unwrap();
            assert!(matches!(last, Step::Respond | Step::SendData), "{kind:?}");
            assert!(!before.iter().any(|step| matches!(step, Step::Respond | Step::SendData)), "{kind:?}");
        }
    }

    #[test]
    fn a_range_is_held_exactly_around_the_medium() {
        let other = |kind: &Kind| !matches!(kind, Kind::Flush | Kind::PropertySet | Kind::ReadInPlace);
        for kind in &Kind::ALL.into_iter().filter(other).collect::<Vec<_>>() {
            let mut held = false;
            for step in kind.steps() {
                match step {
                    Step::LockRange => held = true,
                    Step::UnlockRange => held = false,
                    Step::ReadMedium | Step::WriteMedium | Step::ZeroMedium | Step::DeallocateMedium => {
                        assert!(held, "{kind:?} {step:?}");
                    }
                    // What is compared must be what is written over.
                    Step::CheckFromMedium | Step::Compare if *kind == Kind::CompareAndWrite => {}
                    _ => assert!(
                        !held,
                        "{kind:?}: {step:?} while a range is held would let a peer stall others"
                    ),
                }
            }
            assert!(!held, "{kind:?}");
        }
    }

    #[test]
    fn a_read_in_place_waits_for_nobody_but_its_host_while_it_holds_its_range() {
        let steps = Kind::ReadInPlace.steps();
        let lock = steps.iter().position(|step| *step == Step::LockRange).unwrap();
        let held = [Step::PrefetchMedium, Step::UseMedium, Step::CheckFromMedium, Step::SendData];
        assert_eq!(steps[lock + 1..], held);
    }

    #[test]
    fn protection_is_checked_before_the_medium_and_before_the_host() {
        let index = |kind: Kind, step| kind.steps().iter().position(|s| *s == step).unwrap();
        assert!(index(Kind::Write, Step::ProtectFromHost) < index(Kind::Write, Step::WriteMedium));
        for kind in [Kind::WriteVerify, Kind::CompareAndWrite, Kind::WriteSame] {
            assert!(index(kind, Step::ProtectFromHost) < index(kind, Step::WriteMedium));
        }
        assert!(
            index(Kind::CompareAndWrite, Step::Compare) < index(Kind::CompareAndWrite, Step::WriteMedium)
        );
        for kind in [Kind::Read, Kind::ReadInPlace] {
            assert!(index(kind, Step::CheckFromMedium) < index(kind, Step::SendData));
        }
        assert!(index(Kind::Compare, Step::ProtectFromHost) < index(Kind::Compare, Step::CheckFromMedium));
        assert!(index(Kind::Compare, Step::CheckFromMedium) < index(Kind::Compare, Step::Compare));
    }

    #[test]
    fn next_part_goes_back_to_a_lock_and_ends_otherwise() {
        for kind in Kind::ALL {
            for (index, step) in kind.steps().iter().enumerate() {
                if let Step::NextPart(first) = *step {
                    let first_step = kind.steps()[first];
                    assert!(matches!(first_step, Step::LockRange | Step::FlushMedium), "{kind:?}");
                    let mut progress = Progress { kind, at: index, failed: false };
                    progress.again();
                    assert_eq!(progress.step(), first_step);
                    let mut progress = Progress { kind, at: index, failed: false };
                    progress.done();
                    assert_eq!(progress.step(), Step::Respond);
                }
            }
        }
    }

    #[test]
    fn what_fails_its_check_is_fetched_again_into_the_same_buffers() {
        for kind in [Kind::Write, Kind::Compare] {
            let at = kind.steps().iter().position(|step| *step == Step::ProtectFromHost).unwrap();
            let mut progress = Progress { kind, at, failed: false };
            progress.fetch_again();
            assert_eq!(progress.step(), Step::Fetch);
            progress.done();
            assert_eq!(progress, Progress { kind, at, failed: false }, "nothing stands between the two");
        }
    }

    #[test]
    fn a_failure_at_any_step_leaves_only_the_response() {
        for kind in Kind::ALL {
            for at in 0..kind.steps().len() {
                let mut progress = Progress { kind, at, failed: false };
                progress.fail();
                assert_eq!(progress.step(), Step::Respond, "{kind:?} at {at}");
                assert!(progress.is_last());
            }
        }
    }
}

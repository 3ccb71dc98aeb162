//! Pins the calling thread to a core.

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// Binds the calling thread to `core`.
///
/// # Errors
/// `EINVAL` when this process may not run on that core.
pub fn pin(core: usize) -> nix::Result<()> {
    let mut set = CpuSet::new();
    set.set(core)?;
    sched_setaffinity(Pid::from_raw(0), &set)
}

/// Cores that this process may run on, in order.
///
/// # Errors
/// When the kernel does not tell.
pub fn allowed() -> nix::Result<Vec<usize>> {
    let set = sched_getaffinity(Pid::from_raw(0))?;
    Ok((0..CpuSet::count()).filter(|&core| set.is_set(core).unwrap_or(false)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_runs_only_where_it_was_pinned() {
        std::thread::spawn(|| {
            let core = *allowed().unwrap().last().expect("a process runs somewhere");
            pin(core).unwrap();
            assert_eq!(allowed().unwrap(), [core]);
            assert!(pin(CpuSet::count()).is_err());
        })
        .join()
        .unwrap();
    }
}

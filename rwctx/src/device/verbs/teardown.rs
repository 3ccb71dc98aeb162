//! What it means when the library does not take an object back.

use std::io;

/// What became of an object that was to be destroyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// The device has nothing of it any more.
    Gone,
    /// The device may be gone itself: then the kernel took away all that it had of this process. A device that is there may
    /// say the same of a command that failed.
    DeviceGone,
    /// The device has it still.
    Kept,
}

impl Fate {
    /// What a call that destroys something says by its result.
    pub(super) fn of(result: &io::Result<()>) -> Self {
        match result {
            Ok(()) => Self::Gone,
            Err(error) if is_device_gone(error) => Self::DeviceGone,
            Err(_) => Self::Kept,
        }
    }
}

/// What became of a queue pair that was to be destroyed. Where the device says that it is gone it is asked something else, too,
/// by `query`: the memory of a queue pair that is there could still be written.
pub(super) fn of_queue_pair(destroyed: &io::Result<()>, query: impl FnOnce() -> io::Result<()>) -> Fate {
    match Fate::of(destroyed) {
        Fate::DeviceGone if !query().is_err_and(|error| is_device_gone(&error)) => Fate::Kept,
        fate => fate,
    }
}

/// Whether an error is what the kernel says to every call once a device was removed.
fn is_device_gone(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EIO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_gone_with_its_device_and_kept_by_one_that_refuses() {
        let failed = |errno| Fate::of(&Err(io::Error::from_raw_os_error(errno)));
        assert_eq!(Fate::of(&Ok(())), Fate::Gone);
        assert_eq!(failed(libc::EIO), Fate::DeviceGone);
        for errno in [libc::EBUSY, libc::EINVAL, libc::ENODEV, libc::EAGAIN, libc::ENOMEM] {
            assert_eq!(failed(errno), Fate::Kept, "{errno}");
        }
        assert_eq!(Fate::of(&Err(io::Error::other("no number"))), Fate::Kept);
    }

    #[test]
    fn a_queue_pair_is_gone_with_its_device_when_that_answers_nothing_else_either() {
        let errno = |errno| move || io::Result::Err(io::Error::from_raw_os_error(errno));
        let never = || panic!("there is nothing to ask");
        let eio = errno(libc::EIO)();
        assert_eq!(of_queue_pair(&Ok(()), never), Fate::Gone);
        assert_eq!(of_queue_pair(&errno(libc::EBUSY)(), never), Fate::Kept);
        assert_eq!(of_queue_pair(&eio, errno(libc::EIO)), Fate::DeviceGone);
        // A command of a device that is there failed.
        assert_eq!(of_queue_pair(&eio, || Ok(())), Fate::Kept);
        assert_eq!(of_queue_pair(&eio, errno(libc::ENOMEM)), Fate::Kept);
    }
}

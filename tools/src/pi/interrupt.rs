//! Signals that end a program, noticed between two blocks: so that what is unfinished is removed, or said.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGPIPE, SIGTERM, SIGXFSZ};
use signal_hook::flag;
use signal_hook::low_level::{emulate_default_handler, signal_name};

/// Whether a signal came that ends the program. The default is one that never comes.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicUsize>);

/// A signal that ends the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signal(i32);

impl Interrupt {
    /// Takes the signals of this process from now on. A second one ends it at once, whatever it does. Those that are
    /// ignored stay so. A file that grows beyond its limit (`ulimit -f`) is an error of the write then.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn listen() -> io::Result<Self> {
        let interrupt = Self::default();
        for signal in [SIGHUP, SIGINT, SIGTERM] {
            if is_ignored(signal) {
                continue;
            }
            let again = Arc::new(AtomicBool::new(false));
            flag::register_conditional_default(signal, Arc::clone(&again))?;
            flag::register(signal, again)?;
            let number = usize::try_from(signal).expect("signals are positive");
            flag::register_usize(signal, Arc::clone(&interrupt.0), number)?;
        }
        flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)))?;
        Ok(interrupt)
    }

    /// The signal that came.
    pub(super) fn signal(&self) -> Option<Signal> {
        let number = self.0.load(Ordering::Relaxed);
        i32::try_from(number).ok().filter(|number| *number != 0).map(Signal)
    }
}

impl Signal {
    /// Nobody reads on.
    pub const PIPE: Self = Self(SIGPIPE);

    /// Ends the process as this signal does by itself, so that whoever started it sees why.
    pub fn end(self) {
        // What it does not know, it does not end by; the exit status does then.
        let _ = emulate_default_handler(self.0);
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(signal_name(self.0).unwrap_or("a signal"))
    }
}

/// Whether whoever started this process had it ignore a signal, as `nohup` does. (proc_pid_status(5), `SigIgn`)
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).map(str::trim);
    let mask = mask.and_then(|mask| u64::from_str_radix(mask, 16).ok()).unwrap_or(0);
    mask >> (signal - 1) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_comes_by_itself() {
        assert_eq!(Interrupt::default().signal(), None);
    }

    #[test]
    fn a_signal_is_noticed_and_named() {
        let interrupt = Interrupt::listen().unwrap();
        signal_hook::low_level::raise(SIGTERM).unwrap();
        assert_eq!(interrupt.signal(), Some(Signal(SIGTERM)));
        assert_eq!(Signal(SIGTERM).to_string(), "SIGTERM");
    }

    #[test]
    fn broken_pipes_are_ignored_by_the_runtime_and_that_is_seen() {
        assert!(is_ignored(SIGPIPE) && !is_ignored(SIGTERM));
    }
}

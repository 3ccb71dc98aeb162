//! Writes log lines where they go, as far as that takes them at once: logging never stops who logs, and never ends it.
//!
//! Whoever reads the log may have stopped reading (a terminal that is held, a collector that hangs), may be gone, or may
//! have filled its disk. Lines that can't be written then are lost and counted, and the count stands before the next line
//! that can be.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tracing_subscriber::fmt::MakeWriter;

/// What a pipe or terminal that says it is ready takes without making anybody wait (`PIPE_BUF`).
const AT_ONCE: usize = 4096;

/// How long the first line that finds no room waits for some, in milliseconds; those after it don't. A reader that is merely
/// slower than a burst loses nothing by that.
const PATIENCE: u8 = 20;

/// The way of log lines to a descriptor.
#[derive(Debug)]
pub struct LogWriter<F>(Mutex<Lines<F>>);

#[derive(Debug)]
struct Lines<F> {
    to: F,
    /// Lines that were lost since the last one that was not.
    lost: u64,
    /// The last one that was written is not whole.
    is_cut: bool,
}

/// One event's line.
#[derive(Debug)]
pub struct Line<'w, F>(&'w LogWriter<F>);

impl<F: Write + AsFd> LogWriter<F> {
    /// A writer to `to`, which nobody else should write to.
    #[must_use]
    pub fn new(to: F) -> Self {
        Self(Mutex::new(Lines { to, lost: 0, is_cut: false }))
    }

    /// Writes a line, or counts it as lost.
    fn write(&self, line: &[u8]) {
        let mut lines = self.lines();
        if lines.lost > 0 {
            let newline = if lines.is_cut { "\n" } else { "" };
            let lost = format!("{newline}{} log lines before this were lost: nobody took them\n", lines.lost);
            let put = lines.put(lost.as_bytes());
            if put < lost.len() {
                lines.lost += 1;
                lines.is_cut |= put > 0;
                return;
            }
            (lines.lost, lines.is_cut) = (0, false);
        }
        let put = lines.put(line);
        if put < line.len() {
            (lines.lost, lines.is_cut) = (1, put > 0);
        }
    }

    fn lines(&self) -> MutexGuard<'_, Lines<F>> {
        // Held for calls that don't wait, and whole after each.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<F: Write + AsFd> Lines<F> {
    /// Writes as many of the bytes as there is room for; how many that were.
    fn put(&mut self, bytes: &[u8]) -> usize {
        let mut done = 0;
        while done < bytes.len() && self.has_room() {
            let end = bytes.len().min(done + AT_ONCE);
            match self.to.write(&bytes[done..end]) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        done
    }

    fn has_room(&self) -> bool {
        let wait = if self.lost == 0 { PATIENCE } else { 0 };
        let mut fds = [PollFd::new(self.to.as_fd(), PollFlags::POLLOUT)];
        poll(&mut fds, PollTimeout::from(wait)).is_ok_and(|ready| ready > 0)
    }
}

impl<F: Write + AsFd> Write for Line<'_, F> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.write(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'w, F: Write + AsFd + 'w> MakeWriter<'w> for LogWriter<F> {
    type Writer = Line<'w, F>;

    fn make_writer(&'w self) -> Self::Writer {
        Line(self)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::io::{PipeReader, PipeWriter, Read, pipe};

    use super::*;

    fn writer() -> (PipeReader, LogWriter<PipeWriter>) {
        let (reader, writer) = pipe().unwrap();
        (reader, LogWriter::new(writer))
    }

    fn line(number: usize) -> String {
        format!("{number:>99}\n")
    }

    #[test]
    fn lines_that_nobody_takes_are_lost_counted_and_stop_nobody() {
        let (mut reader, log) = writer();
        // Much more than a pipe holds: this would never end.
        (0..10_000).for_each(|number| log.write(line(number).as_bytes()));
        // Once a part of it was read, there is room for more.
        let mut text = vec![0; 3 * AT_ONCE];
        reader.read_exact(&mut text).unwrap();
        log.write(b"again\n");
        drop(log);
        reader.read_to_end(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let whole = (0..).take_while(|number| text.contains(&line(*number))).count();
        assert!(whole > 100, "{whole}");
        let lost = format!("\n{} log lines before this were lost: nobody took them\nagain\n", 10_000 - whole);
        assert!(text.ends_with(&lost), "wanted {lost} at the end of {}", &text[text.len() - 400..]);
    }

    #[test]
    fn a_reader_that_is_gone_and_a_disk_that_is_full_end_nothing() {
        let (reader, log) = writer();
        drop(reader);
        log.write(line(1).as_bytes());
        assert_eq!(log.lines().lost, 1);
        let full = LogWriter::new(OpenOptions::new().write(true).open("/dev/full").unwrap());
        (0..3).for_each(|number| full.write(line(number).as_bytes()));
        assert_eq!(full.lines().lost, 3);
    }

    #[test]
    fn a_line_longer_than_a_pipe_takes_at_once_arrives_whole() {
        let (mut reader, log) = writer();
        log.write("x".repeat(3 * AT_ONCE + 7).as_bytes());
        log.write(b"\nnext\n");
        drop(log);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text.len(), 3 * AT_ONCE + 7 + 6);
    }
}

//! A bar on the terminal for what takes long; nothing where standard error is none.

use indicatif::{ProgressBar, ProgressStyle};

/// How far something has got, in bytes of data.
#[derive(Debug)]
pub(super) struct Progress(ProgressBar);

impl Progress {
    pub(super) fn new(bytes: u64) -> Self {
        let bar = ProgressBar::new(bytes);
        let style = "{bar:40} {binary_bytes} of {binary_total_bytes}, {binary_bytes_per_sec}, {eta} left";
        bar.set_style(ProgressStyle::with_template(style).expect("a template that is tested"));
        Self(bar)
    }

    pub(super) fn add(&self, bytes: u64) {
        self.0.inc(bytes);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_has_a_template_that_is_understood() {
        let progress = Progress::new(1 << 20);
        progress.add(4096);
        assert_eq!(progress.0.position(), 4096);
    }
}

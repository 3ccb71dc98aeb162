//! A number of things, in words.

use std::fmt;

/// `1 block`, `2 blocks`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counted(pub(super) u64, pub(super) &'static str);

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.0 == 1 { "" } else { "s" };
        write!(f, "{} {}{plural}", self.0, self.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_singular() {
        let texts = [0, 1, 2].map(|number| Counted(number, "block").to_string());
        assert_eq!(texts, ["0 blocks", "1 block", "2 blocks"]);
    }
}

//! What is wrong with a configuration, and where: `FILE:LINE:COL: path.to.key: what is wrong and what is allowed`.

use std::cell::RefCell;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// What is wrong with one configuration file, in the order of the file. Prints one line each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors {
    first: Vec<ConfigError>,
    /// How many more there are.
    more: usize,
}

/// Errors that are told: a file with more is another file than its reader thinks.
const TOLD: usize = 100;

impl ConfigErrors {
    /// The file could not be read at all.
    pub(super) fn unreadable(file: &Path, why: &std::io::Error) -> Self {
        let message = format!("the file can't be read: {why}");
        let error = ConfigError { file: file.to_owned(), place: None, path: String::new(), message };
        Self { first: vec![error], more: 0 }
    }

    /// The errors, in the order of the file: the first 100.
    #[must_use]
    pub fn errors(&self) -> &[ConfigError] {
        &self.first
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, error) in self.first.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{error}")?;
        }
        match (self.more, self.first.first()) {
            (1.., Some(error)) => {
                write!(f, "\n{}: {} more errors are not shown", error.file.display(), self.more)
            }
            _ => Ok(()),
        }
    }
}

impl std::error::Error for ConfigErrors {}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The file, as it was named to us.
    pub file: PathBuf,
    /// Where it is in the file; absent when the file could not be read.
    pub place: Option<Place>,
    /// The key, such as `volume[0].protection.type` (array elements count from 0); empty for syntax errors.
    pub path: String,
    /// What is wrong and what is allowed, on one line.
    pub message: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.file.display())?;
        if let Some(Place { line, column }) = self.place {
            write!(f, "{line}:{column}:")?;
        }
        if !self.path.is_empty() {
            write!(f, " {}:", self.path)?;
        }
        write!(f, " {}", self.message)
    }
}

/// A place in a text file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
}

impl Place {
    /// The place of the byte at `offset`; an offset beyond the text is its end.
    pub(super) fn of(text: &str, offset: usize) -> Self {
        let before = text.get(..offset).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Self {
            line: before.matches('\n').count() + 1,
            column: before.get(line_start..).map_or(0, |line| line.chars().count()) + 1,
        }
    }
}

/// Collects what is wrong while a file is read, so that one run shows all of it.
#[derive(Debug, Default)]
pub(super) struct Diagnostics(RefCell<Vec<Problem>>);

#[derive(Debug)]
struct Problem {
    at: usize,
    path: String,
    message: String,
}

impl Diagnostics {
    /// Notes one problem at byte `at` of the text.
    pub(super) fn report(&self, at: usize, path: impl Into<String>, message: impl Into<String>) {
        self.0.borrow_mut().push(Problem { at, path: path.into(), message: message.into() });
    }

    /// Notes a syntax error.
    pub(super) fn syntax(&self, span: Option<Range<usize>>, message: &str) {
        let message =
            message.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(", ");
        self.report(span.map_or(0, |span| span.start), "", format!("not valid TOML: {message}"));
    }

    /// The outcome: `Ok` when nothing was noted.
    pub(super) fn into_result(self, file: &Path, text: &str) -> Result<(), ConfigErrors> {
        let mut problems = self.0.into_inner();
        if problems.is_empty() {
            return Ok(());
        }
        problems.sort_by_key(|problem| problem.at);
        let more = problems.len().saturating_sub(TOLD);
        let errors = problems.into_iter().take(TOLD).map(|Problem { at, path, message }| ConfigError {
            file: file.to_owned(),
            place: Some(Place::of(text, at)),
            path,
            message,
        });
        Err(ConfigErrors { first: errors.collect(), more })
    }
}

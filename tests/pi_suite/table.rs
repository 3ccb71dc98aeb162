//! What became of damage, counted, and as README shows it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::damage::{Damage, Reason, Scene, Verdict};
use super::format::Format;
use super::oracle::Field;
use super::point::Point;

/// What became of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Outcome {
    Caught(Field),
    Passed(Reason),
}

impl From<Verdict> for Outcome {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Caught { field, .. } => Self::Caught(field),
            Verdict::Passes(reason) => Self::Passed(reason),
        }
    }
}

/// How often what became of which damage where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    counts: BTreeMap<(Damage, Point, Outcome), usize>,
    formats: usize,
}

impl Tally {
    pub(crate) fn new(formats: usize) -> Self {
        Self { counts: BTreeMap::new(), formats }
    }

    /// What the standard says.
    pub(crate) fn expected(formats: &[Format]) -> Self {
        let mut tally = Self::new(formats.len());
        for format in formats {
            let scene = Scene::new(format);
            for damage in Damage::ALL.into_iter().filter(|damage| damage.apply(format, &scene).is_some()) {
                for point in Point::ALL {
                    if let Some(verdict) = point.expect(damage, format) {
                        tally.count(damage, point, verdict.into());
                    }
                }
            }
        }
        tally
    }

    pub(crate) fn count(&mut self, damage: Damage, point: Point, outcome: Outcome) {
        *self.counts.entry((damage, point, outcome)).or_default() += 1;
    }

    /// Adds what another one counted.
    #[cfg(feature = "_fault")]
    pub(crate) fn add(&mut self, other: &Self) {
        for (case, count) in &other.counts {
            *self.counts.entry(*case).or_default() += count;
        }
    }

    /// The section of README between its marks.
    pub(crate) fn text(&self) -> String {
        let mut text = format!(
            "{} formats, {} damaged commands.\n\n| damage | detected, in so many formats | passes by design |\n| --- | --- | --- |\n",
            self.formats,
            self.counts.values().sum::<usize>()
        );
        for damage in Damage::ALL {
            let outcomes =
                self.counts.iter().filter(|((what, at, _), _)| (*what, *at) == (damage, Point::Medium));
            let (mut caught, mut passed) = (Vec::new(), Vec::new());
            for ((_, _, outcome), count) in outcomes {
                match outcome {
                    Outcome::Caught(field) => {
                        caught.push(format!("{} {count}", field.name().replace("_tag", " tag")));
                    }
                    Outcome::Passed(reason) => passed.push(format!("{count}: {}", reason.text())),
                }
            }
            let (caught, passed) = (caught.join(", "), passed.join("; "));
            writeln!(text, "| {} | {caught} | {passed} |", damage.text())
                .expect("writing to a string can't fail");
        }
        text += "\n| where | commands | detected | who notices |\n| --- | --- | --- | --- |\n";
        for point in Point::ALL {
            let at = || self.counts.iter().filter(move |((_, at, _), _)| *at == point);
            let all: usize = at().map(|(_, count)| count).sum();
            let caught = at().filter(|((_, _, outcome), _)| matches!(outcome, Outcome::Caught(_)));
            let caught: usize = caught.map(|(_, count)| count).sum();
            writeln!(text, "| {} | {all} | {caught} | {} |", point.text(), point.noticed())
                .expect("writing to a string can't fail");
        }
        text
    }
}

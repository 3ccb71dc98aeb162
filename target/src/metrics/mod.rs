//! Counters made visible: a snapshot of families becomes Prometheus text (OpenMetrics), served over HTTP.
//!
//! What is counted, and where, belongs to those who count; they hand over a [`Source`]. Nothing here runs on a
//! reactor's thread, and a scrape only reads.

mod http;

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

pub use http::Server;

/// One metric with its samples.
#[derive(Clone, Debug, PartialEq)]
pub struct Family {
    /// Name, from `intact_` on; a counter's without the closing `_total`, which is added.
    pub name: &'static str,
    /// A sentence without its full stop; units belong in the name.
    pub help: &'static str,
    /// Whether it only grows.
    pub kind: Kind,
    /// Values by labels; no two have the same labels.
    pub samples: Vec<Sample>,
}

impl Family {
    /// A value that only grows.
    #[must_use]
    pub fn counter(name: &'static str, help: &'static str) -> Self {
        Self { name, help, kind: Kind::Counter, samples: Vec::new() }
    }

    /// A value that comes and goes.
    #[must_use]
    pub fn gauge(name: &'static str, help: &'static str) -> Self {
        Self { name, help, kind: Kind::Gauge, samples: Vec::new() }
    }

    /// Adds a sample.
    #[must_use]
    pub fn with(mut self, labels: &[(&'static str, &str)], value: u64) -> Self {
        let labels = labels.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        self.samples.push(Sample { labels, value });
        self
    }
}

/// Whether a metric only grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows, from 0 at start.
    Counter,
    /// It comes and goes.
    Gauge,
}

/// One value of a metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Names and values.
    pub labels: Vec<(&'static str, String)>,
    /// The value.
    pub value: u64,
}

/// Takes a snapshot of everything that is counted. Called on the server's thread for each scrape.
pub type Source = Arc<dyn Fn() -> Vec<Family> + Send + Sync>;

/// Makes the text of one scrape.
#[must_use]
pub fn scrape(source: &Source) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Snapshot(source())));
    let mut out = String::new();
    text::encode(&mut out, &registry).expect("writing to a string can't fail");
    out
}

#[derive(Debug)]
struct Snapshot(Vec<Family>);

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for family in &self.0 {
            debug_assert!(family.name.starts_with("intact_"), "{} is one of our names", family.name);
            let kind = match family.kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
            };
            let mut metric = encoder.encode_descriptor(family.name, family.help, None, kind)?;
            for sample in &family.samples {
                let mut metric = metric.encode_family(&sample.labels)?;
                match family.kind {
                    Kind::Counter => metric.encode_counter::<NoLabelSet, u64, u64>(&sample.value, None)?,
                    Kind::Gauge => metric.encode_gauge(&sample.value)?,
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scrape_is_prometheus_text() {
        let source: Source = Arc::new(|| {
            vec![
                Family::counter("intact_packets_received", "Datagrams that arrived")
                    .with(&[("reactor", "0")], 7)
                    .with(&[("reactor", "1")], u64::MAX),
                Family::gauge("intact_queue_pairs", "Queue pairs that exist").with(&[], 3),
                Family::gauge("intact_volume_bytes", "Size").with(&[("volume", "a\"b\\c\nd")], 1),
            ]
        });
        let expected = "\
# HELP intact_packets_received Datagrams that arrived
# TYPE intact_packets_received counter
intact_packets_received_total{reactor=\"0\"} 7
intact_packets_received_total{reactor=\"1\"} 18446744073709551615
# HELP intact_queue_pairs Queue pairs that exist
# TYPE intact_queue_pairs gauge
intact_queue_pairs 3
# HELP intact_volume_bytes Size
# TYPE intact_volume_bytes gauge
intact_volume_bytes{volume=\"a\\\"b\\\\c\\nd\"} 1
# EOF
";
        assert_eq!(scrape(&source), expected);
    }
}

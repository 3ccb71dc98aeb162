//! What a target shows on `[metrics]`.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Samples of one scrape.
#[derive(Clone, Debug)]
pub struct Metrics {
    text: String,
}

impl Metrics {
    /// Asks a target.
    ///
    /// # Panics
    /// When it does not answer.
    #[must_use]
    pub fn scrape(address: SocketAddr) -> Self {
        let ask = || {
            let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(10))?;
            stream.set_read_timeout(Some(Duration::from_secs(10)))?;
            stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n")?;
            let mut text = String::new();
            stream.read_to_string(&mut text)?;
            std::io::Result::Ok(text)
        };
        let text = ask().unwrap_or_else(|error| panic!("no metrics from {address}: {error}"));
        assert!(text.starts_with("HTTP/1.1 200"), "{text}");
        Self { text }
    }

    /// The sum of all samples of a name whose labels include `labels`, such as `reactor="0"`; empty: all.
    ///
    /// # Panics
    /// When there is no sample of this name: it is misspelt.
    #[must_use]
    pub fn sum(&self, name: &str, labels: &str) -> u64 {
        let samples: Vec<&str> = self
            .text
            .lines()
            .filter(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' '])))
            .collect();
        assert!(!samples.is_empty(), "no metric {name} in\n{}", self.text);
        let values = samples.iter().filter(|line| line.contains(labels)).map(|line| {
            let value = line.rsplit(' ').next().unwrap_or_default();
            value.parse::<u64>().unwrap_or_else(|_| panic!("not a whole number: {line}"))
        });
        values.sum()
    }

    /// All of it, for messages.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}

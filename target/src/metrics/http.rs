//! A very small HTTP/1.1 server for scrapes: `GET /metrics` and nothing else.
//!
//! Owns its threads: one that accepts, and one for each of a few connections. Requests are bounded in size and time, so
//! that a client that sends slowly, or never reads, costs one of those few threads for seconds and nothing else.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::sys::socket;

use super::{Source, scrape};

/// Connections served at once; more are closed at once.
const CONNECTIONS_MAX: usize = 8;

/// Longest request head, in bytes.
const HEAD_MAX: usize = 8 * 1024;

/// Longest time from a connection to the end of its response.
const TIME_MAX: Duration = Duration::from_secs(5);

/// What accepting waits after it failed (out of descriptors, say).
const PAUSE: Duration = Duration::from_millis(100);

/// Serves scrapes until it is dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    listener: Arc<TcpListener>,
    stopping: Arc<AtomicBool>,
    acceptor: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens on `address` (port 0: one that the kernel chooses) and serves what `source` shows.
    ///
    /// # Errors
    /// When the address can't be listened on, or no thread can be started.
    pub fn start(address: SocketAddr, source: Source) -> io::Result<Self> {
        let listener = Arc::new(TcpListener::bind(address)?);
        let address = listener.local_addr()?;
        let stopping = Arc::new(AtomicBool::new(false));
        let acceptor = thread::Builder::new().name("metrics".to_owned()).spawn({
            let (listener, stopping) = (Arc::clone(&listener), Arc::clone(&stopping));
            move || accept(&listener, &stopping, &source)
        })?;
        Ok(Self { address, listener, stopping, acceptor: Some(acceptor) })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Release);
        // That wakes the acceptor. A connection would, too, but the address may be gone, or a firewall before it.
        let woken = socket::shutdown(self.listener.as_raw_fd(), socket::Shutdown::Both);
        debug_assert!(woken.is_ok(), "the socket listens");
        if let Some(acceptor) = self.acceptor.take() {
            // It panics only by a bug of ours, which has been printed then.
            let _ = acceptor.join();
        }
    }
}

fn accept(listener: &TcpListener, stopping: &AtomicBool, source: &Source) {
    let open = Arc::new(AtomicUsize::new(0));
    loop {
        let accepted = listener.accept();
        if stopping.load(Ordering::Acquire) {
            return;
        }
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(why) => {
                tracing::warn!("metrics: can't accept a connection: {why}");
                thread::sleep(PAUSE);
                continue;
            }
        };
        if open.fetch_add(1, Ordering::AcqRel) >= CONNECTIONS_MAX {
            open.fetch_sub(1, Ordering::AcqRel);
            continue;
        }
        let guard = Open(Arc::clone(&open));
        let source = Arc::clone(source);
        let started = thread::Builder::new().name("metrics-client".to_owned()).spawn(move || {
            // The peer's faults end its connection and concern nobody else.
            let _ = serve(stream, &source);
            drop(guard);
        });
        if let Err(why) = started {
            tracing::warn!("metrics: can't serve a connection: {why}");
        }
    }
}

/// One connection that counts as open.
#[derive(Debug)]
struct Open(Arc<AtomicUsize>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

fn serve(stream: TcpStream, source: &Source) -> io::Result<()> {
    let mut stream = Timed::new(stream);
    let mut head = Vec::with_capacity(1024);
    let mut buffer = [0; 1024];
    let answer = loop {
        let length = stream.read(&mut buffer)?;
        if length == 0 {
            return Ok(());
        }
        head.extend_from_slice(buffer.get(..length).unwrap_or_default());
        if head.len() > HEAD_MAX {
            break answer("431 Request Header Fields Too Large", "the request is too long\n", Body::Sent);
        }
        if let Some(line) = complete(&head) {
            break respond(line, source);
        }
    };
    stream.write_all(answer.as_bytes())?;
    // Closing with unread bytes would reset the connection before the answer is read.
    stream.finish()
}

/// The request line, once the head is complete.
fn complete(head: &[u8]) -> Option<&[u8]> {
    let ends = |end: &[u8]| head.windows(end.len()).any(|window| window == end);
    (ends(b"\r\n\r\n") || ends(b"\n\n")).then(|| head.split(|b| *b == b'\n').next().unwrap_or_default())
}

fn respond(line: &[u8], source: &Source) -> String {
    let line = String::from_utf8_lossy(line);
    let mut words = line.trim_end().split(' ');
    let (method, target, version) = (words.next(), words.next(), words.next());
    let (Some(method), Some(target), Some("HTTP/1.1" | "HTTP/1.0"), None) =
        (method, target, version, words.next())
    else {
        return answer("400 Bad Request", "not an HTTP/1 request\n", Body::Sent);
    };
    let body = if method == "HEAD" { Body::Left } else { Body::Sent };
    let path = target.split('?').next().unwrap_or_default();
    match (method, path) {
        ("GET" | "HEAD", "/metrics") => answer("200 OK", &scrape(source), body),
        ("GET" | "HEAD", _) => answer("404 Not Found", "metrics are at /metrics\n", body),
        _ => answer("405 Method Not Allowed", "only GET and HEAD are allowed\n", body),
    }
}

/// Whether a response's body is sent, or only described.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Body {
    Sent,
    Left,
}

fn answer(status: &str, body: &str, send: Body) -> String {
    let kind = match status {
        "200 OK" => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        _ => "text/plain; charset=utf-8",
    };
    let allow = if status.starts_with("405") { "Allow: GET, HEAD\r\n" } else { "" };
    let length = body.len();
    let sent = if send == Body::Sent { body } else { "" };
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{allow}Connection: close\r\n\r\n{sent}"
    )
}

/// A stream whose calls all together have a deadline.
struct Timed {
    stream: TcpStream,
    deadline: Instant,
}

#[expect(clippy::disallowed_methods, reason = "a driver: it bounds the time of its own connections")]
impl Timed {
    fn new(stream: TcpStream) -> Self {
        Self { stream, deadline: Instant::now() + TIME_MAX }
    }

    fn left(&self) -> io::Result<Duration> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
    }
}

impl Timed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.left()?))?;
        self.stream.read(buffer)
    }

    fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            self.stream.set_write_timeout(Some(self.left()?))?;
            let written = self.stream.write(bytes)?;
            bytes = bytes.get(written..).unwrap_or_default();
        }
        Ok(())
    }

    /// Ends our side and reads away what the peer still sends, up to a bound.
    fn finish(mut self) -> io::Result<()> {
        self.stream.shutdown(Shutdown::Write)?;
        let mut buffer = [0; 1024];
        for _ in 0..64 {
            if self.read(&mut buffer)? == 0 {
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::super::Family;
    use super::*;

    fn server() -> Server {
        let source: Source = Arc::new(|| vec![Family::gauge("intact_answer", "What it is").with(&[], 42)]);
        Server::start((Ipv4Addr::LOCALHOST, 0).into(), source).unwrap()
    }

    fn ask(server: &Server, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.write_all(request).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        String::from_utf8(answer).unwrap()
    }

    #[test]
    fn a_scrape_is_answered_with_the_source_s_snapshot() {
        let server = server();
        let answer = ask(&server, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text"), "{head}");
        assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
        assert_eq!(
            body,
            "# HELP intact_answer What it is\n# TYPE intact_answer gauge\nintact_answer 42\n# EOF\n"
        );
    }

    #[test]
    fn head_has_no_body() {
        let answer = ask(&server(), b"HEAD /metrics?x HTTP/1.0\n\n");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\n"), "{answer}");
    }

    #[test]
    fn what_is_no_scrape_gets_its_status() {
        let server = server();
        let long = [b"GET /metrics HTTP/1.1\r\nX: ".as_slice(), &[b'x'; HEAD_MAX]].concat();
        let cases: [(&[u8], &str); 6] = [
            (b"GET / HTTP/1.1\r\n\r\n", "404"),
            (b"POST /metrics HTTP/1.1\r\n\r\n", "405"),
            (b"GET /metrics\r\n\r\n", "400"),
            (b"GET /metrics HTTP/1.1 x\r\n\r\n", "400"),
            (b"\xff\xfe\r\n\r\n", "400"),
            (&long, "431"),
        ];
        for (request, status) in cases {
            let answer = ask(&server, request);
            assert_eq!(answer.split(' ').nth(1), Some(status), "{:?}", String::from_utf8_lossy(request));
        }
    }

    #[test]
    fn clients_that_say_nothing_don_t_keep_others_from_their_answers() {
        let server = server();
        let silent: Vec<_> =
            (1..CONNECTIONS_MAX).map(|_| TcpStream::connect(server.address()).unwrap()).collect();
        assert!(ask(&server, b"GET /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200"));
        drop(silent);
    }

    #[test]
    fn a_server_whose_address_is_gone_ends() {
        let mut server = server();
        // For documentation: nothing there can be reached.
        server.address = (Ipv4Addr::new(192, 0, 2, 77), 9).into();
        drop(server);
    }

    #[test]
    fn a_dropped_server_frees_its_port() {
        let server = server();
        let address = server.address();
        drop(server);
        assert!(TcpStream::connect(address).is_err());
    }
}

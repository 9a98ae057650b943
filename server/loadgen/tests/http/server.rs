//! A small HTTP server over threads, whose answers a test decides.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;

/// What a server does with a request.
pub(crate) struct Answer {
    bytes: Vec<u8>,
    then: Then,
}

enum Then {
    Keep,
    Close,
    Reset,
    /// Says nothing more, and waits for the client to go.
    Hang,
    /// Repeats these bytes until the client goes.
    Repeat(Vec<u8>),
}

impl Answer {
    pub(crate) fn new(bytes: impl AsRef<[u8]>) -> Self {
        Self {
            bytes: bytes.as_ref().to_vec(),
            then: Then::Keep,
        }
    }

    /// A response with this status line, these further header lines and this body.
    pub(crate) fn response(status: &str, fields: &str, body: &str) -> Self {
        let length = body.len();
        Self::new(format!(
            "HTTP/1.1 {status}\r\nContent-Length: {length}\r\n{fields}\r\n{body}"
        ))
    }

    pub(crate) fn ok() -> Self {
        Self::response("200 OK", "", "hello")
    }

    pub(crate) fn then_close(mut self) -> Self {
        self.then = Then::Close;
        self
    }

    pub(crate) fn then_reset(mut self) -> Self {
        self.then = Then::Reset;
        self
    }

    pub(crate) fn then_hang(mut self) -> Self {
        self.then = Then::Hang;
        self
    }

    pub(crate) fn then_repeat(mut self, bytes: impl AsRef<[u8]>) -> Self {
        self.then = Then::Repeat(bytes.as_ref().to_vec());
        self
    }
}

/// A running server; it lives as long as the test program.
pub(crate) struct Server {
    address: SocketAddr,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    /// Connections that carried a request.
    connections: AtomicU64,
    requests: AtomicU64,
    bytes_sent: AtomicU64,
}

impl Server {
    /// Answers each request with what `answer` makes of its head.
    pub(crate) fn start(answer: impl Fn(&str) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let counts = Arc::new(Counts::default());
        let (answer, counted) = (Arc::new(answer), Arc::clone(&counts));
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (answer, counts) = (Arc::clone(&answer), Arc::clone(&counted));
                thread::spawn(move || serve(stream, &*answer, &counts));
            }
        });
        Self { address, counts }
    }

    /// Answers all requests alike.
    pub(crate) fn always(answer: impl Fn() -> Answer + Send + Sync + 'static) -> Self {
        Self::start(move |_| answer())
    }

    /// Is gone before it answers its first and only request.
    pub(crate) fn gone_after_one_answer() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            let mut streams = listener.incoming().map_while(Result::ok);
            let asked = streams.find_map(|mut stream| read_head(&mut stream).map(|_| stream));
            drop(listener);
            let answer = Answer::response("200 OK", "Connection: close\r\n", "hello");
            asked.unwrap().write_all(&answer.bytes).unwrap();
        });
        Self {
            address,
            counts: Arc::default(),
        }
    }

    /// Resets every connection at once.
    pub(crate) fn resetting() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
            }
        });
        Self {
            address,
            counts: Arc::default(),
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    pub(crate) fn connections(&self) -> u64 {
        self.counts.connections.load(Ordering::SeqCst)
    }

    pub(crate) fn requests(&self) -> u64 {
        self.counts.requests.load(Ordering::SeqCst)
    }

    pub(crate) fn bytes_sent(&self) -> u64 {
        self.counts.bytes_sent.load(Ordering::SeqCst)
    }
}

fn serve(mut stream: TcpStream, answer: &dyn Fn(&str) -> Answer, counts: &Counts) {
    // a test that fails must not leave threads behind for ever
    stream
        .set_read_timeout(Some(Duration::from_mins(1)))
        .unwrap();
    let mut first = true;
    while let Some(head) = read_head(&mut stream) {
        counts.requests.fetch_add(1, Ordering::SeqCst);
        counts
            .connections
            .fetch_add(u64::from(first), Ordering::SeqCst);
        first = false;
        let Answer { bytes, then } = answer(&head);
        if stream.write_all(&bytes).is_err() {
            return;
        }
        match then {
            Then::Keep => {}
            Then::Close => return,
            Then::Reset => {
                set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
                return;
            }
            Then::Hang => {
                let _ = stream.read(&mut [0; 1]);
                return;
            }
            Then::Repeat(bytes) => {
                while stream.write_all(&bytes).is_ok() {
                    let sent = bytes.len() as u64;
                    counts.bytes_sent.fetch_add(sent, Ordering::SeqCst);
                }
                return;
            }
        }
    }
}

/// The next head; none when the client is gone.
fn read_head(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    let mut buffer = [0; 1024];
    while !head.ends_with(b"\r\n\r\n") {
        let count = stream.read(&mut buffer).ok().filter(|count| *count > 0)?;
        head.extend(&buffer[..count]);
    }
    String::from_utf8(head).ok()
}

//! A server with a folder of its own, and a client that sends bytes as they are.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tunedweb_config::{Config, Settings};
use tunedweb_server::{Ended, Server, Stop};

/// No wait of a test is longer.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

/// A server in this process.
pub(crate) struct Site {
    folder: TempDir,
    pub(crate) address: SocketAddr,
    pub(crate) admin: SocketAddr,
    stop: tokio::sync::mpsc::UnboundedSender<Stop>,
    thread: Option<JoinHandle<Ended>>,
}

impl Site {
    pub(crate) fn new(files: &[(&str, &[u8])]) -> Self {
        Self::with_settings(files, |_| {})
    }

    pub(crate) fn with_settings(files: &[(&str, &[u8])], set: impl FnOnce(&mut Settings)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (name, content) in files {
            write(&folder.path().join(name), content);
        }
        let mut settings = settings(folder.path());
        set(&mut settings);
        let config = Config::try_from(settings).unwrap();
        let (stop, mut stops) = tokio::sync::mpsc::unbounded_channel();
        let (started, wait) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let server = Server::start(&config).unwrap();
                started
                    .send((server.listen_address(), server.admin_address().unwrap()))
                    .unwrap();
                let stops = tokio::sync::Mutex::new(&mut stops);
                let next = || async { stops.lock().await.recv().await.unwrap_or(Stop::Quick) };
                server.run(next).await.unwrap()
            })
        });
        let (address, admin) = wait.recv_timeout(DEADLINE).unwrap();
        Self {
            folder,
            address,
            admin,
            stop,
            thread: Some(thread),
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        write(&self.path(name), content.as_ref());
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.address)
    }

    /// Asks on a connection of its own.
    pub(crate) fn get(&self, target: &str) -> Response {
        self.connect().get(target)
    }

    pub(crate) fn ask_to_stop(&self, stop: Stop) {
        self.stop.send(stop).unwrap();
    }

    pub(crate) fn ended(&mut self) -> Ended {
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        // twice: the second ends the drain
        let _ = self.stop.send(Stop::Quick);
        let _ = self.stop.send(Stop::Quick);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Loopback, ports chosen by the kernel, two workers.
pub(crate) fn settings(root: &Path) -> Settings {
    let text = format!(
        "root = '{}'\nlisten = '127.0.0.1:0'\nadmin = '127.0.0.1:0'\n[server]\nworkers = 2\n",
        root.display()
    );
    Settings::parse(&text).unwrap()
}

fn write(path: &Path, content: &[u8]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

/// Writes anew under another name and renames, as careful deployments do.
pub(crate) fn replace(path: &Path, content: &[u8]) {
    let new = path.with_extension("new");
    write(&new, content);
    fs::rename(&new, path).unwrap();
}

/// Waits for `condition` until the deadline.
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) -> Duration {
    let start = Instant::now();
    while !condition() {
        assert!(
            start.elapsed() < DEADLINE,
            "not within {DEADLINE:?}: {what}"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    start.elapsed()
}

/// One connection.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    received: Vec<u8>,
}

/// A response, its head as text.
#[derive(Debug, Clone)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        Self::try_connect(address, DEADLINE).unwrap()
    }

    pub(crate) fn try_connect(address: SocketAddr, timeout: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, timeout)?;
        stream.set_read_timeout(Some(DEADLINE))?;
        stream.set_write_timeout(Some(DEADLINE))?;
        Ok(Self {
            stream,
            received: Vec::new(),
        })
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        self.stream.write_all(bytes.as_ref()).unwrap();
        self
    }

    pub(crate) fn get(&mut self, target: &str) -> Response {
        self.request("GET", target, "")
    }

    pub(crate) fn request(&mut self, method: &str, target: &str, fields: &str) -> Response {
        self.send(format!(
            "{method} {target} HTTP/1.1\r\nHost: a\r\n{fields}\r\n"
        ));
        self.try_response(method == "HEAD").unwrap()
    }

    pub(crate) fn response(&mut self) -> Response {
        self.try_response(false).unwrap()
    }

    pub(crate) fn try_response(&mut self, head_only: bool) -> io::Result<Response> {
        let end = loop {
            if let Some(at) = self.received.windows(4).position(|w| w == b"\r\n\r\n") {
                break at + 4;
            }
            self.receive()?;
        };
        let head = String::from_utf8(self.received.drain(..end).collect()).unwrap();
        let status: u16 = head[9..12].parse().unwrap();
        let mut response = Response {
            status,
            head,
            body: Vec::new(),
        };
        let length = response
            .field("Content-Length")
            .map_or(0, |value| value.parse().unwrap());
        if !head_only && status != 304 {
            while self.received.len() < length {
                self.receive()?;
            }
            response.body = self.received.drain(..length).collect();
        }
        Ok(response)
    }

    fn receive(&mut self) -> io::Result<()> {
        let mut buffer = vec![0; 64 * 1024];
        match self.stream.read(&mut buffer)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            length => {
                self.received.extend_from_slice(&buffer[..length]);
                Ok(())
            }
        }
    }

    /// What comes until the server closes; panics if it resets or does not close.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        let mut rest = std::mem::take(&mut self.received);
        self.stream.read_to_end(&mut rest).unwrap();
        rest
    }

    pub(crate) fn assert_closed(&mut self) {
        let rest = self.rest();
        assert!(rest.is_empty(), "{:?}", String::from_utf8_lossy(&rest));
    }

    pub(crate) fn half_close(&mut self) -> &mut Self {
        self.stream.shutdown(Shutdown::Write).unwrap();
        self
    }
}

impl Response {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.head.split("\r\n").skip(1).find_map(|line| {
            let (field, value) = line.split_once(": ")?;
            field.eq_ignore_ascii_case(name).then_some(value)
        })
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

/// The ETag that a content must have: from nothing but its bytes.
pub(crate) fn etag_of(content: &[u8]) -> String {
    use sha2::{Digest, Sha256};
    let hash = Sha256::digest(content);
    let hex: Vec<String> = hash[..16]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("\"{}\"", hex.concat())
}

/// The value of a metric, summed over its labels.
pub(crate) fn metric(admin: SocketAddr, name: &str) -> u64 {
    let body = Client::connect(admin).get("/metrics");
    let lines = body.text().lines().filter(|line| {
        line.strip_prefix(name)
            .is_some_and(|rest| rest.starts_with(['{', ' ']))
    });
    lines
        .map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
        .sum()
}

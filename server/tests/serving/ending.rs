//! How the server ends: nobody notices.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tunedweb_server::Stop;

use crate::site::{Client, Site, eventually};

fn site(drain_seconds: u32) -> Site {
    let large = vec![b'x'; 40_000_000];
    Site::with_settings(&[("a", b"a"), ("large", &large)], |settings| {
        settings.server.timeouts.drain_seconds = drain_seconds;
    })
}

fn is_ready(site: &Site) -> bool {
    Client::connect(site.admin).get("/readyz").status == 200
}

#[test]
fn readiness_fails_first_while_connections_are_still_accepted() {
    let site = site(6);
    site.ask_to_stop(Stop::Graceful);
    eventually("not ready", || !is_ready(&site));
    let response = site.get("/a");
    assert_eq!((response.status, response.field("Connection")), (200, None));
    assert_eq!(Client::connect(site.admin).get("/healthz").status, 200);
}

#[test]
fn responses_say_close_once_the_server_drains() {
    let mut site = site(3);
    let mut clients: Vec<Client> = (0..10).map(|_| site.connect()).collect();
    site.ask_to_stop(Stop::Graceful);
    eventually("every connection was told to close", || {
        clients.retain_mut(|client| client.get("/a").field("Connection").is_none());
        clients.is_empty()
    });
    assert_eq!(site.ended().cut, 0);
}

#[test]
fn a_response_under_way_is_finished() {
    let mut site = site(6);
    let mut client = site.connect();
    client.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
    client.stream.peek(&mut [0]).unwrap();
    site.ask_to_stop(Stop::Graceful);
    eventually("the listener is closed", || {
        TcpStream::connect(site.address).is_err()
    });
    assert_eq!(client.response().body.len(), 40_000_000);
    client.assert_closed();
    assert_eq!(site.ended().cut, 0);
}

#[test]
fn idle_connections_are_closed_without_a_reset_and_do_not_delay_the_end() {
    let mut site = site(60);
    let mut used = site.connect();
    used.get("/a");
    let mut unused = site.connect();
    let start = Instant::now();
    site.ask_to_stop(Stop::Graceful);
    used.assert_closed();
    unused.assert_closed();
    drop((used, unused));
    assert_eq!(site.ended().cut, 0);
    assert!(
        start.elapsed() < Duration::from_secs(15),
        "{:?}",
        start.elapsed()
    );
}

#[test]
fn what_does_not_end_in_time_is_cut_off_and_counted() {
    let mut site = site(1);
    let mut client = site.connect();
    client.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
    client.stream.peek(&mut [0]).unwrap();
    let start = Instant::now();
    site.ask_to_stop(Stop::Graceful);
    assert_eq!(site.ended().cut, 1);
    assert!(
        start.elapsed() < Duration::from_secs(10),
        "{:?}",
        start.elapsed()
    );
}

#[test]
fn a_quick_stop_is_quick_and_a_second_one_ends_at_once() {
    let mut first = site(60);
    let start = Instant::now();
    first.ask_to_stop(Stop::Quick);
    assert_eq!(first.ended().cut, 0);
    assert!(
        start.elapsed() < Duration::from_secs(10),
        "{:?}",
        start.elapsed()
    );
    let mut second = site(60);
    let mut client = second.connect();
    client.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
    client.stream.peek(&mut [0]).unwrap();
    let start = Instant::now();
    second.ask_to_stop(Stop::Graceful);
    second.ask_to_stop(Stop::Graceful);
    assert_eq!(second.ended().cut, 1);
    assert!(
        start.elapsed() < Duration::from_secs(10),
        "{:?}",
        start.elapsed()
    );
}

/// Short and kept connections all through the end: a connection may be refused, since the server is
/// gone at last, but no connection that was opened may be reset, and none may end inside a response.
#[test]
fn under_load_no_connection_is_reset() {
    for _ in 0..2 {
        let mut site = site(3);
        let over = AtomicBool::new(false);
        let answered = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for number in 0..6 {
                let (site, over, answered) = (&site, &over, &answered);
                scope.spawn(move || load(site.address, number % 2 == 0, over, answered));
            }
            eventually("there is load", || answered.load(Ordering::Relaxed) > 500);
            site.ask_to_stop(Stop::Graceful);
            eventually(
                "the listener is closed",
                || match TcpStream::connect_timeout(&site.address, Duration::from_secs(3)) {
                    Ok(_) => false,
                    Err(error) => error.kind() == ErrorKind::ConnectionRefused,
                },
            );
            over.store(true, Ordering::Relaxed);
        });
        assert_eq!(site.ended().cut, 0);
    }
}

fn load(address: SocketAddr, keep: bool, over: &AtomicBool, answered: &AtomicU64) {
    while !over.load(Ordering::Relaxed) {
        let Ok(mut client) = Client::try_connect(address, Duration::from_secs(3)) else {
            return;
        };
        loop {
            client.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
            let response = client.response();
            assert_eq!(response.text(), "a");
            answered.fetch_add(1, Ordering::Relaxed);
            if response.field("Connection") == Some("close") {
                client.assert_closed();
                break;
            }
            if !keep || over.load(Ordering::Relaxed) {
                break;
            }
        }
    }
}

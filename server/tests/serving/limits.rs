//! Everything has a limit, and what is dropped is counted.

use std::io::Read;
use std::time::{Duration, Instant};

use crate::site::{Client, DEADLINE, Site, eventually, metric};

#[test]
fn a_connection_beyond_the_limit_is_closed_at_once_and_counted() {
    let site = Site::with_settings(&[("a", b"a")], |settings| {
        settings.server.workers = Some(1);
        settings.server.max_connections_per_worker = 3;
    });
    let mut kept: Vec<Client> = (0..3).map(|_| site.connect()).collect();
    for client in &mut kept {
        assert_eq!(client.get("/a").status, 200);
    }
    let mut beyond = site.connect();
    assert_eq!(beyond.stream.read(&mut [0]).unwrap(), 0);
    assert_eq!(
        metric(site.admin, "tunedweb_server_connections_dropped_total"),
        1
    );
    kept.pop();
    eventually("a place is free again", || {
        let mut client = site.connect();
        client.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
        client.try_response(false).is_ok()
    });
    assert_eq!(kept[0].get("/a").status, 200);
}

#[test]
fn the_last_permitted_request_closes_its_connection() {
    let site = Site::with_settings(&[("a", b"a")], |settings| {
        settings.server.keep_alive.max_requests = 3;
    });
    let mut client = site.connect();
    assert_eq!(client.get("/a").field("Connection"), None);
    assert_eq!(client.get("/a").field("Connection"), None);
    assert_eq!(client.get("/a").field("Connection"), Some("close"));
    client.assert_closed();
}

#[test]
fn a_pipeline_past_the_last_permitted_request_loses_no_response() {
    let site = Site::with_settings(&[("a", &vec![b'x'; 50_000])], |settings| {
        settings.server.keep_alive.max_requests = 3;
    });
    let mut client = site.connect();
    client.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n".repeat(500));
    for _ in 0..3 {
        assert_eq!(client.response().body.len(), 50_000);
    }
    client.half_close().assert_closed();
}

#[test]
fn an_idle_timeout_of_zero_closes_after_each_response() {
    let site = Site::with_settings(&[("a", b"a")], |settings| {
        settings.server.keep_alive.idle_timeout_seconds = 0;
    });
    let mut client = site.connect();
    assert_eq!(client.get("/a").field("Connection"), Some("close"));
    client.assert_closed();
}

#[test]
fn idle_connections_are_closed_after_their_time_without_a_reset() {
    let site = Site::with_settings(&[("a", b"a")], |settings| {
        settings.server.keep_alive.idle_timeout_seconds = 1;
    });
    let mut client = site.connect();
    assert_eq!(client.get("/a").status, 200);
    let start = Instant::now();
    client.assert_closed();
    let took = start.elapsed();
    assert!(
        took >= Duration::from_secs(1) && took < Duration::from_secs(8),
        "{took:?}"
    );
}

#[test]
fn a_request_that_does_not_arrive_in_time_gets_408() {
    let site = Site::with_settings(&[("a", b"a")], |settings| {
        settings.server.timeouts.header_seconds = 1;
    });
    let mut silent = site.connect();
    let mut slow = site.connect();
    let mut second = site.connect();
    let mut body = site.connect();
    let start = Instant::now();
    slow.send("GET /a HTT");
    assert_eq!(second.get("/a").status, 200);
    second.send("G");
    body.send("GET /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nx");
    for client in [&mut silent, &mut slow, &mut second, &mut body] {
        let response = client.response();
        assert_eq!(
            (response.status, response.field("Connection")),
            (408, Some("close"))
        );
        client.assert_closed();
    }
    assert!(start.elapsed() >= Duration::from_secs(1));
    assert!(
        start.elapsed() < Duration::from_secs(8),
        "{:?}",
        start.elapsed()
    );
    assert_eq!(
        metric(site.admin, "tunedweb_server_request_timeouts_total"),
        4
    );
}

#[test]
fn dripping_bytes_does_not_prolong_the_time_for_a_request() {
    let site = Site::with_settings(&[("a", b"a")], |settings| {
        settings.server.timeouts.header_seconds = 1;
    });
    let mut client = site.connect();
    client
        .stream
        .set_read_timeout(Some(Duration::from_millis(50)))
        .unwrap();
    let start = Instant::now();
    let mut received = [0; 12];
    client.send("GET /a HTTP/1.1\r\nX: ");
    while client.stream.peek(&mut received).is_err() {
        assert!(start.elapsed() < DEADLINE);
        client.send("x");
    }
    assert_eq!(&received, b"HTTP/1.1 408");
}

#[test]
fn a_client_that_takes_nothing_is_reset() {
    let site = Site::with_settings(&[("a", &vec![b'x'; 30_000_000])], |settings| {
        settings.server.timeouts.send_seconds = 1;
    });
    let mut client = site.connect();
    client.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("the connection is given up", || {
        metric(site.admin, "tunedweb_server_send_timeouts_total") == 1
    });
    eventually("the connection is closed", || {
        metric(site.admin, "tunedweb_server_connections_closed_total") == 1
    });
    let error = client.stream.read_to_end(&mut Vec::new()).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

#[test]
fn a_slow_client_that_keeps_reading_gets_everything() {
    let bytes = 12_000_000;
    let site = Site::with_settings(&[("a", &vec![b'x'; bytes])], |settings| {
        settings.server.timeouts.send_seconds = 2;
    });
    let mut client = site.connect();
    client.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
    // longer than the timeout in all, with progress in between
    let mut received = 0;
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(4_500) {
        received += client.stream.read(&mut vec![0; 150_000]).unwrap();
        std::thread::sleep(Duration::from_millis(100));
    }
    let mut buffer = vec![0; 1 << 20];
    while received < bytes {
        let length = client.stream.read(&mut buffer).unwrap();
        assert_ne!(length, 0, "ended after {received} bytes");
        received += length;
    }
}

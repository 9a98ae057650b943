//! How much is done: requests, connections, time, memory.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::program::{Run, finish, load, start, wait_until};
use crate::server::{Answer, Server};

#[test]
fn a_count_is_kept_exactly_over_threads_and_connections() {
    let server = Server::always(Answer::ok);
    let run = load(&server.url(), "-t 3 -c 7 -n 1000");
    let summary = run.summary();
    assert_eq!(summary.requests, 1_000);
    assert_eq!(server.requests(), 1_000);
    assert_eq!(summary.connections_opened, 7);
    assert_eq!(server.connections(), 7);
    assert_eq!(run.code, Some(0));
}

#[test]
fn a_count_is_kept_exactly_when_requests_fail() {
    let number = AtomicU64::new(0);
    let server = Server::always(move || match number.fetch_add(1, Ordering::SeqCst) % 10 {
        0 => Answer::new("").then_reset(),
        1 => Answer::new("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"),
        2 => Answer::response("503 Busy", "", ""),
        _ => Answer::ok(),
    });
    let summary = load(&server.url(), "-c 5 -n 100").summary();
    assert_eq!(summary.requests + summary.errors.total(), 100);
    assert_eq!(server.requests(), 100);
    assert_eq!(summary.requests, 70);
}

#[test]
fn fewer_requests_than_connections_open_fewer_connections() {
    let server = Server::always(Answer::ok);
    let summary = load(&server.url(), "-c 50 -n 3").summary();
    assert_eq!((summary.requests, summary.connections_opened), (3, 3));
}

#[test]
fn short_mode_opens_a_connection_for_each_request() {
    let server = Server::start(|head| {
        assert!(head.contains("\r\nConnection: close\r\n"), "{head}");
        Answer::response("200 OK", "Connection: close\r\n", "hello").then_close()
    });
    let summary = load(&server.url(), "-c 4 -n 200 --short").summary();
    assert_eq!(summary.requests, 200);
    assert_eq!(summary.connections_opened, 200);
    assert_eq!(server.connections(), 200);
    assert_eq!(summary.errors.total(), 0);
}

#[test]
fn a_connection_that_the_server_does_not_close_is_closed_after_a_second() {
    let server = Server::always(|| Answer::ok().then_hang());
    let run = load(&server.url(), "-c 1 -n 2 --short");
    assert_eq!(run.summary().requests, 2);
    let note = "the server left 1 connections for this side to close";
    assert!(run.stderr.contains(note), "{}", run.stderr);
}

#[test]
fn a_connection_that_the_server_announces_to_close_is_opened_anew_without_error() {
    let number = AtomicU64::new(0);
    let server = Server::always(move || {
        if number.fetch_add(1, Ordering::SeqCst) % 10 == 9 {
            Answer::response("200 OK", "Connection: close\r\n", "hello").then_close()
        } else {
            Answer::ok()
        }
    });
    let summary = load(&server.url(), "-c 1 -n 100").summary();
    assert_eq!((summary.requests, summary.errors.total()), (100, 0));
    assert_eq!(summary.connections_opened, 10);
}

/// Whatever is under way at the end is neither an answer nor an error, and there is at most one
/// such request a connection.
#[test]
fn the_server_sees_at_most_one_request_a_connection_more_than_are_counted() {
    for connections in [1, 8, 40] {
        let server = Server::always(Answer::ok);
        let run = load(&server.url(), &format!("-t 2 -c {connections} -d 300ms"));
        let summary = run.summary();
        assert_eq!(summary.duration_microseconds, 300_000);
        assert_eq!(summary.errors.total(), 0, "{}", run.stderr);
        let more = server.requests() - summary.requests;
        assert!(more <= connections, "{more} of {connections}");
        assert!(summary.requests > 0);
    }
}

#[test]
fn a_request_that_is_under_way_at_the_end_is_no_error() {
    let server = Server::always(|| Answer::new("").then_hang());
    let run = load(&server.url(), "-c 3 -d 200ms");
    let summary = run.summary();
    assert_eq!((summary.requests, summary.errors.total()), (0, 0));
    assert_eq!(server.requests(), 3);
    assert_eq!(run.code, Some(1));
}

#[test]
fn a_server_that_is_gone_is_not_asked_in_a_busy_loop() {
    let server = Server::gone_after_one_answer();
    let summary = load(&server.url(), "-c 1 -d 1s").summary();
    // pauses of 10, 20, 40 … ms: seven attempts in a second
    let attempts = summary.errors.connect;
    assert!((1..=7).contains(&attempts), "{attempts}");
}

#[test]
fn a_body_without_end_takes_time_but_no_memory() {
    let server = Server::always(|| {
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
        Answer::new(head).then_repeat(chunk)
    });
    let child = start(&server.url(), "-c 2 -d 60s");
    wait_until("256 MiB of body", || server.bytes_sent() > 256 << 20);
    let memory = peak_memory_kibibytes(child.id());
    send(child.id(), Signal::TERM);
    finish(child);
    assert!(memory < 32 << 10, "{memory} KiB");
}

#[test]
fn a_signal_ends_the_load_early_and_what_was_measured_is_reported() {
    for signal in [Signal::INT, Signal::TERM] {
        let server = Server::always(Answer::ok);
        let child = start(&server.url(), "-c 4 -d 1h");
        wait_until("load", || server.requests() > 100);
        send(child.id(), signal);
        let run = finish(child);
        assert_eq!(run.code, Some(1));
        assert!(run.pod().ended_early);
        assert!(run.summary().requests > 0);
        assert!(run.stderr.contains("stopped by a signal"), "{}", run.stderr);
    }
}

#[test]
fn a_signal_ends_the_wait_for_a_server() {
    let port = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    };
    let url = format!("http://127.0.0.1:{port}/");
    let child = start(&url, "--connect-wait 1h");
    // a signal before the handlers are set ends the process at once, which is fine as well
    wait_until("start", || has_handler(child.id()));
    send(child.id(), Signal::TERM);
    let run = finish(child);
    assert_eq!(run.code, Some(1));
    assert!(run.stderr.contains("stopped before"), "{}", run.stderr);
}

#[test]
fn connections_beyond_the_limit_of_open_files_are_refused_with_the_arithmetic() {
    let run = load_with_limit("ulimit -n 64", "-c 100 -n 100");
    assert_eq!(run.code, Some(1));
    assert!(run.stderr.contains("need 133 open files"), "{}", run.stderr);
    assert!(
        run.stderr.contains("at most 31 connections"),
        "{}",
        run.stderr
    );
}

#[test]
fn the_soft_limit_of_open_files_is_raised_to_the_hard_one() {
    let run = load_with_limit("ulimit -Sn 64", "-c 100 -n 100");
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert_eq!(run.summary().requests, 100);
}

fn load_with_limit(limit: &str, flags: &str) -> Run {
    let server = Server::always(Answer::ok);
    let program = env!("CARGO_BIN_EXE_tunedweb-loadgen");
    let url = server.url();
    let line = format!("{limit}; exec {program} http {url} --json {flags}");
    let child = Command::new("sh")
        .args(["-c", &line])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    finish(child)
}

fn send(process: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(process).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

/// Largest resident set so far (proc_pid_status(5), VmHWM).
fn peak_memory_kibibytes(process: u32) -> u64 {
    let status = status(process);
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    line.unwrap()
        .split_whitespace()
        .nth(1)
        .unwrap()
        .parse()
        .unwrap()
}

/// Whether the process catches SIGTERM (proc_pid_status(5), SigCgt).
fn has_handler(process: u32) -> bool {
    const SIGTERM_BIT: u64 = 1 << 14;
    let status = status(process);
    let line = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = u64::from_str_radix(line.unwrap().trim(), 16).unwrap();
    caught & SIGTERM_BIT != 0
}

fn status(process: u32) -> String {
    std::fs::read_to_string(format!("/proc/{process}/status")).unwrap()
}

/// One response after another, the last ones later than the limit of the first.
#[test]
fn the_time_limit_holds_for_each_request_on_its_own() {
    let server = Server::always(|| {
        std::thread::sleep(Duration::from_millis(300));
        Answer::ok()
    });
    let summary = load(&server.url(), "-c 1 -n 8 --request-timeout 2s").summary();
    assert_eq!((summary.requests, summary.errors.total()), (8, 0));
    assert!(summary.duration_microseconds > 2_000_000);
}

//! What the result says and where it goes.

use std::time::Duration;

use tunedweb_measure::{Load, PodReport, ValidityInputs, ValidityState, validity};

use crate::program::{Run, command, finish, load};
use crate::server::{Answer, Server};

#[test]
fn the_figures_agree_with_what_the_server_did() {
    let server = Server::always(Answer::ok);
    let summary = load(&server.url(), "-c 2 -n 500").summary();
    let response = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
    assert_eq!(summary.bytes, 500 * response.len() as u64);
    let expected = 500 * 1_000_000 / summary.duration_microseconds;
    assert_eq!(summary.requests_per_second, expected);
    assert!(summary.p50_microseconds <= summary.p99_microseconds);
    assert!(summary.p99_microseconds <= summary.max_microseconds);
}

#[test]
fn the_response_time_runs_to_the_last_byte() {
    let server = Server::always(|| {
        std::thread::sleep(Duration::from_millis(50));
        Answer::ok()
    });
    let summary = load(&server.url(), "-c 2 -n 10").summary();
    assert!(summary.p50_microseconds >= 50_000, "{summary:?}");
    assert!(summary.max_microseconds >= summary.mean_microseconds);
}

#[test]
fn a_load_obeys_littles_law() {
    let server = Server::always(Answer::ok);
    let summary = load(&server.url(), "-t 2 -c 8 -d 1s").summary();
    let load: Load = serde_json::from_str(r#"{"connections": 8}"#).unwrap();
    let found = validity(&ValidityInputs {
        load: &load,
        summary: &summary,
        pods_expected: 1,
        pods_reported: 1,
        shared_node: false,
    });
    assert_eq!(found.state, ValidityState::Valid, "{summary:?}");
}

#[test]
fn a_pod_is_put_together_from_its_termination_message_and_its_log() {
    let server = Server::always(Answer::ok);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("termination-log");
    let child = command(&server.url(), "-c 2 -n 300 --run site-x --histogram-log")
        .arg("--termination-message")
        .arg(&path)
        .env("JOB_COMPLETION_INDEX", "7")
        .spawn()
        .unwrap();
    let run = finish(child);
    let message = std::fs::read_to_string(&path).unwrap();
    let report = PodReport::read("site-x", 7, &message, run.stdout.lines()).unwrap();
    assert_eq!(report.histogram.count(), 300);
    assert_eq!(report.pod.summary.requests, 300);
    assert_eq!(report.pod, run.pod());
    assert!(report.pod.started_at_microseconds > 0);
}

#[test]
fn a_termination_message_that_cannot_be_written_is_a_failure() {
    let server = Server::always(Answer::ok);
    let flags = "-n 1 --termination-message /nonexistent/file";
    let run = load(&server.url(), flags);
    assert_eq!(run.code, Some(1));
    let expected = "cannot write the result to /nonexistent/file: No such file";
    assert!(run.stderr.contains(expected), "{}", run.stderr);
}

#[test]
fn options_are_taken_from_the_environment_in_the_same_words() {
    let server = Server::always(Answer::ok);
    let child = command(&server.url(), "")
        .env("TUNEDWEB_LOADGEN_CONNECTIONS", "3")
        .env("TUNEDWEB_LOADGEN_REQUESTS", "9")
        .env("TUNEDWEB_LOADGEN_SHORT", "false")
        .env("TUNEDWEB_LOADGEN_RUN", "r")
        .env("TUNEDWEB_LOADGEN_INDEX", "4")
        .spawn()
        .unwrap();
    let pod = finish(child).pod();
    assert_eq!((pod.run.as_str(), pod.index), ("r", 4));
    assert_eq!(pod.summary.requests, 9);
    assert_eq!(pod.summary.connections_opened, 3);
}

#[test]
fn progress_is_a_line_a_second_with_rate_errors_and_connections() {
    let server = Server::always(Answer::ok);
    let run = load(&server.url(), "-c 3 -d 2500ms --progress");
    let line = run.stderr.lines().next().unwrap();
    let second = line.trim_start().split_once(" s ").unwrap().0;
    assert!(matches!(second, "1" | "2"), "{line}");
    assert!(line.contains("requests/s"), "{line}");
    assert!(line.contains("0 errors"), "{line}");
    assert!(line.ends_with("3 connections"), "{line}");
}

#[test]
fn without_a_terminal_there_is_no_progress_and_only_data_on_standard_output() {
    let server = Server::always(Answer::ok);
    let run = load(&server.url(), "-c 1 -d 1500ms");
    assert!(!run.stderr.contains("requests/s"), "{}", run.stderr);
    assert_eq!(run.stdout.lines().count(), 1);
}

#[test]
fn the_result_is_the_same_where_nobody_reads_standard_error() {
    let server = Server::always(Answer::ok);
    let full = || std::fs::File::create("/dev/full").unwrap();
    let mut program = command(&server.url(), "-c 2 -n 100 --progress");
    let run = finish(program.stderr(full()).spawn().unwrap());
    assert_eq!(run.code, Some(0));
    assert_eq!(run.summary().requests, 100);

    let mut program = command("http://127.0.0.1:1/", "");
    let run = finish(program.stderr(full()).spawn().unwrap());
    assert_eq!(run.code, Some(1));
}

#[test]
fn a_server_that_cannot_be_reached_is_named_with_the_reason() {
    let run = load("http://127.0.0.1:1/", "-n 1");
    assert_eq!(run.code, Some(1));
    let expected = "error: the load cannot start: cannot connect to 127.0.0.1:1: \
                    Connection refused (os error 111)\n";
    assert_eq!(run.stderr, expected);
}

#[test]
fn a_wrong_command_line_ends_with_2_and_the_reason() {
    let refused = |url: &str, flags: &str, reason: &str| {
        let Run { code, stderr, .. } = load(url, flags);
        assert_eq!(code, Some(2), "{stderr}");
        assert!(stderr.contains(reason), "{stderr}");
    };
    refused("https://h/", "", "TLS is not supported");
    refused("http://h:x/", "", "from 1 to 65535");
    refused("http://h/", "-c 0", "1..=1048576");
    refused("http://h/", "-t 300", "1..=256");
    refused("http://h/", "-d 0s", "longer than 0");
    refused("http://h/", "-n 0", "0 is not in 1..");
    refused("http://h/", "--request-timeout 2m", "at most 60s");
    refused("http://h/", "--run a_b", "letters, digits");
}

#[test]
fn the_index_that_kubernetes_gives_must_be_one() {
    let child = command("http://127.0.0.1:1/", "")
        .env("JOB_COMPLETION_INDEX", "first")
        .spawn()
        .unwrap();
    let run = finish(child);
    assert_eq!(run.code, Some(1));
    let expected = "JOB_COMPLETION_INDEX is \"first\"";
    assert!(run.stderr.contains(expected), "{}", run.stderr);
}

#[test]
fn help_shows_examples_and_exit_codes() {
    let run = load("--help", "");
    assert_eq!(run.code, Some(0));
    for expected in ["Examples:", "Exit codes:", "--connect-wait", "TIME_WAIT"] {
        assert!(run.stdout.contains(expected), "{}", run.stdout);
    }
}

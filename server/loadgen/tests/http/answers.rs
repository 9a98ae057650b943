//! What each kind of answer is counted as.

use std::sync::atomic::{AtomicU64, Ordering};

use tunedweb_measure::Errors;

use crate::program::{Run, load};
use crate::server::{Answer, Server};

const FOUR_REQUESTS: &str = "-c 2 -n 4";

/// Four requests to a server that always answers like this.
fn four(answer: impl Fn() -> Answer + Send + Sync + 'static) -> Run {
    load(&Server::always(answer).url(), FOUR_REQUESTS)
}

/// The same with a time limit that is worth waiting for.
fn four_with_time_limit(answer: impl Fn() -> Answer + Send + Sync + 'static) -> Run {
    let flags = format!("{FOUR_REQUESTS} --request-timeout 300ms");
    load(&Server::always(answer).url(), &flags)
}

/// Every one of the four requests was answered.
fn assert_all_answered(run: &Run) {
    let summary = run.summary();
    assert_eq!(summary.errors, Errors::default(), "{}", run.stderr);
    assert_eq!(summary.requests, 4);
    assert_eq!(run.code, Some(0));
}

/// Every one of the four requests failed in this way, and the program says so.
fn assert_all_failed(run: &Run, expected: &Errors) {
    let summary = run.summary();
    assert_eq!(&summary.errors, expected, "{}", run.stderr);
    assert_eq!(summary.requests, 0);
    assert_eq!(run.code, Some(1));
}

fn closed() -> Errors {
    Errors {
        closed: 4,
        ..Errors::default()
    }
}

fn protocol() -> Errors {
    Errors {
        protocol: 4,
        ..Errors::default()
    }
}

fn timeout() -> Errors {
    Errors {
        timeout: 4,
        ..Errors::default()
    }
}

#[test]
fn a_chunked_response_is_an_answer() {
    let body = "5\r\nhello\r\n1;x=y\r\n!\r\n0\r\nTrailer: x\r\n\r\n";
    let text = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{body}");
    let run = four(move || Answer::new(&text));
    assert_all_answered(&run);
    assert_eq!(run.summary().connections_opened, 2);
}

#[test]
fn a_response_that_ends_with_its_connection_is_an_answer() {
    let run = four(|| Answer::new("HTTP/1.1 200 OK\r\n\r\nhello").then_close());
    assert_all_answered(&run);
    assert_eq!(run.summary().connections_opened, 4);
}

#[test]
fn a_response_of_http_1_0_is_an_answer_and_ends_its_connection() {
    let text = "HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello";
    let run = four(move || Answer::new(text).then_close());
    assert_all_answered(&run);
    assert_eq!(run.summary().connections_opened, 4);
}

#[test]
fn interim_responses_are_passed_over() {
    let interim = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
    let text = format!("{interim}{interim}HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx");
    assert_all_answered(&four(move || Answer::new(&text)));
}

#[test]
fn statuses_without_a_body_are_answers() {
    for status in ["204 No Content", "304 Not Modified"] {
        let text = format!("HTTP/1.1 {status}\r\nETag: \"x\"\r\n\r\n");
        assert_all_answered(&four(move || Answer::new(&text)));
    }
}

#[test]
fn a_body_larger_than_any_buffer_is_followed_to_its_end() {
    let body = "x".repeat(3 << 20);
    let run = four(move || Answer::response("200 OK", "", &body));
    assert_all_answered(&run);
    assert!(run.summary().bytes > 4 * (3 << 20));
}

#[test]
fn statuses_from_400_on_are_errors_and_keep_the_connection() {
    let number = AtomicU64::new(0);
    let server = Server::always(move || {
        let status = match number.fetch_add(1, Ordering::SeqCst) % 4 {
            0 => "404 Not Found",
            1 => "500 Internal Server Error",
            _ => "200 OK",
        };
        Answer::response(status, "", "hello")
    });
    let run = load(&server.url(), "-c 2 -n 400");
    let summary = run.summary();
    assert_eq!((summary.requests, summary.errors.status), (200, 200));
    assert_eq!(summary.errors.total(), 200);
    assert_eq!(summary.connections_opened, 2);
    assert_eq!(run.code, Some(0));
}

#[test]
fn a_server_that_is_gone_is_counted_as_connect() {
    let server = Server::gone_after_one_answer();
    let run = load(&server.url(), "-c 1 -n 4");
    let expected = Errors {
        connect: 3,
        ..Errors::default()
    };
    assert_eq!(run.summary().errors, expected);
    assert_eq!(run.summary().requests, 1);
    assert!(run.stderr.contains("Connection refused"), "{}", run.stderr);
}

#[test]
fn a_reset_in_the_middle_of_a_body_is_counted_as_closed() {
    let half = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf";
    assert_all_failed(&four(move || Answer::new(half).then_reset()), &closed());
}

#[test]
fn a_body_that_ends_too_early_is_counted_as_closed() {
    let half = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf";
    assert_all_failed(&four(move || Answer::new(half).then_close()), &closed());
    let chunk = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n";
    assert_all_failed(&four(move || Answer::new(chunk).then_close()), &closed());
}

#[test]
fn a_connection_that_ends_without_an_answer_is_counted_as_closed() {
    assert_all_failed(&four(|| Answer::new("").then_close()), &closed());
    assert_all_failed(&four(|| Answer::new("").then_reset()), &closed());
    let run = load(&Server::resetting().url(), FOUR_REQUESTS);
    assert_all_failed(&run, &closed());
    assert_eq!(run.summary().connections_opened, 4);
}

/// The end comes with the answer, unannounced: what follows must not be sent into the void.
#[test]
fn a_connection_that_ends_right_after_an_answer_is_opened_anew() {
    let run = four(|| Answer::ok().then_close());
    let summary = run.summary();
    assert_eq!(summary.requests + summary.errors.closed, 4);
    assert_eq!(summary.errors.total(), summary.errors.closed);
}

#[test]
fn a_response_that_does_not_come_or_does_not_end_is_counted_as_timeout() {
    let run = four_with_time_limit(|| Answer::new("").then_hang());
    assert_all_failed(&run, &timeout());
    let half = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf";
    let run = four_with_time_limit(move || Answer::new(half).then_hang());
    assert_all_failed(&run, &timeout());
}

#[test]
fn what_is_not_http_is_counted_as_protocol() {
    for text in [
        "SSH-2.0-OpenSSH\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nno chunk\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\ntoo much",
    ] {
        assert_all_failed(&four(move || Answer::new(text).then_hang()), &protocol());
    }
}

#[test]
fn a_head_without_end_is_counted_as_protocol() {
    let endless = || Answer::new("HTTP/1.1 200 OK\r\n").then_repeat("X-Filler: x\r\n".repeat(100));
    let run = four(endless);
    assert_all_failed(&run, &protocol());
    assert!(run.stderr.contains("16384 bytes"), "{}", run.stderr);
}

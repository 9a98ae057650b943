//! Where a request begins and ends, and what is no request at all.

use crate::site::{Site, eventually, metric};

const GET: &str = "GET /a HTTP/1.1\r\nHost: a\r\n\r\n";

fn site() -> Site {
    Site::new(&[("a", b"aa"), ("b", b"bb")])
}

#[test]
fn malformed_requests_get_400_and_the_connection_ends() {
    let site = site();
    for request in [
        "\0\r\n\r\n",
        "GET\r\n\r\n",
        "GET /a\r\n\r\n",
        "GET  /a HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /a b HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET\t/a HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /a HTTP/1.10\r\nHost: a\r\n\r\n",
        "GET /a http/1.1\r\nHost: a\r\n\r\n",
        "GET a HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET * HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET ftp://h/a HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /a HTTP/1.1\r\n\r\n",
        "GET /a HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "GET /a HTTP/1.1\r\nHost: a/b\r\n\r\n",
        "GET /a HTTP/1.1\nHost: a\n\n",
        "GET /a HTTP/1.1\r\nHost: a\r\nX\r\n\r\n",
        "GET /a HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n",
        "GET /a HTTP/1.1\r\nHost: a\r\nX : b\r\n\r\n",
        "GET /a HTTP/1.1\r\nHost: a\r\nX: \u{1}\r\n\r\n",
        "GET /a HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        "GET /a HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
        "GET /a HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
        "GET /a HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
    ] {
        let mut client = site.connect();
        let response = client.send(request).response();
        assert_eq!(
            (response.status, response.field("Connection")),
            (400, Some("close")),
            "{request:?}"
        );
        client.assert_closed();
    }
}

#[test]
fn versions_beyond_1_1_are_told_apart() {
    let site = site();
    let status = |version: &str| {
        site.connect()
            .send(format!("GET /a {version}\r\nHost: a\r\n\r\n"))
            .response()
            .status
    };
    assert_eq!([status("HTTP/1.2"), status("HTTP/1.9")], [200, 200]);
    assert_eq!([status("HTTP/2.0"), status("HTTP/3.0")], [505, 505]);
    let preface = site
        .connect()
        .send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        .response();
    assert_eq!(preface.status, 505);
}

#[test]
fn what_is_too_long_is_told_what_is_too_long() {
    let site = site();
    let long = "x".repeat(9_000);
    let status = |request: String| {
        let mut client = site.connect();
        let status = client.send(request).response().status;
        client.assert_closed();
        status
    };
    assert_eq!(
        status(format!("GET /{long} HTTP/1.1\r\nHost: a\r\n\r\n")),
        414
    );
    assert_eq!(status(format!("GET /{long}{long}")), 414);
    assert_eq!(status(format!("GET / HTTP/1.1\r\nX: {long}{long}")), 431);
    let many = "X: y\r\n".repeat(200);
    assert_eq!(
        status(format!("GET / HTTP/1.1\r\nHost: a\r\n{many}\r\n")),
        431
    );
    let body = "Content-Length: 2000000\r\n";
    assert_eq!(
        status(format!(
            "POST / HTTP/1.1\r\nHost: a\r\n{body}\r\n{long}{long}"
        )),
        413
    );
}

#[test]
fn an_error_reaches_a_client_that_is_still_sending() {
    let site = site();
    let mut client = site.connect();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\n");
    for _ in 0..50 {
        client.send(vec![b'x'; 10_000]);
    }
    assert_eq!(client.response().status, 413);
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let site = site();
    let mut client = site.connect();
    let b = "GET /b HTTP/1.1\r\nHost: a\r\n\r\n";
    client.send([GET, b, "GET /none HTTP/1.1\r\nHost: a\r\n\r\n", GET].concat());
    assert_eq!(client.response().text(), "aa");
    assert_eq!(client.response().text(), "bb");
    assert_eq!(client.response().status, 404);
    assert_eq!(client.response().text(), "aa");
    client.send([GET, "nonsense\r\n\r\n", GET].concat());
    assert_eq!(client.response().status, 200);
    assert_eq!(client.response().status, 400);
    client.assert_closed();
}

#[test]
fn a_long_pipeline_with_large_files_is_answered_whole() {
    let large = vec![b'x'; 300_000];
    let site = Site::new(&[("a", b"aa"), ("large", &large)]);
    let mut client = site.connect();
    let mut sender = client.stream.try_clone().unwrap();
    let pair = format!("{GET}{}", GET.replace("/a", "/large"));
    let writer = std::thread::spawn(move || {
        use std::io::Write;
        for _ in 0..10 {
            sender.write_all(pair.repeat(5).as_bytes()).unwrap();
        }
    });
    for _ in 0..50 {
        assert_eq!(client.response().text(), "aa");
        assert!(client.response().body == large);
    }
    writer.join().unwrap();
    let many = 3_000;
    let mut sender = client.stream.try_clone().unwrap();
    let writer = std::thread::spawn(move || {
        use std::io::Write;
        sender.write_all(GET.repeat(many).as_bytes()).unwrap();
    });
    for _ in 0..many {
        assert_eq!(client.response().text(), "aa");
    }
    writer.join().unwrap();
}

#[test]
fn a_request_may_come_a_byte_at_a_time() {
    let site = site();
    let mut client = site.connect();
    client.stream.set_nodelay(true).unwrap();
    for byte in ["\r\n", GET, GET].concat().bytes() {
        client.send([byte]);
    }
    assert_eq!(client.response().text(), "aa");
    assert_eq!(client.response().text(), "aa");
}

#[test]
fn bodies_are_skipped_and_the_next_request_is_found() {
    let site = site();
    let mut client = site.connect();
    for (fields, body) in [
        ("Content-Length: 5\r\n", "hello"),
        ("Transfer-Encoding: chunked\r\n", "5\r\nhello\r\n0\r\n\r\n"),
        (
            "Transfer-Encoding: chunked\r\n",
            "005;x=y\r\nhello\r\n0\r\nT: v\r\n\r\n",
        ),
    ] {
        client.send(format!(
            "GET /b HTTP/1.1\r\nHost: a\r\n{fields}\r\n{body}{GET}"
        ));
        assert_eq!(client.response().text(), "bb", "{fields}");
        assert_eq!(client.response().text(), "aa", "{fields}");
        client.send(format!("POST /b HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
        client.send(body);
        assert_eq!(client.response().status, 405, "{fields}");
    }
    assert_eq!(client.get("/a").text(), "aa");
}

#[test]
fn a_response_waits_for_the_end_of_the_body_it_depends_on() {
    let site = site();
    for body in [
        "5\nhello",
        "5 \r\nhello",
        "0x5\r\n",
        "-5\r\n",
        "5\r\nhelloX",
        "fffffffffffffffff\r\n",
    ] {
        let mut client = site.connect();
        client.send(format!(
            "GET /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{body}"
        ));
        assert_eq!(client.response().status, 400, "{body:?}");
        client.assert_closed();
    }
    let mut client = site.connect();
    client.send("GET /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n20000\r\n");
    assert_eq!(client.response().status, 413);
    let mut client = site.connect();
    client.send("GET /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n");
    assert_eq!(client.response().status, 501);
}

#[test]
fn an_expectation_is_answered_at_once() {
    let site = site();
    let expect = |fields: &str| {
        let mut client = site.connect();
        client.send(format!(
            "POST /a HTTP/1.1\r\nHost: a\r\nExpect: {fields}\r\n\r\n"
        ));
        let response = client.response();
        (response.status, response.field("Connection").is_some())
    };
    assert_eq!(expect("100-continue\r\nContent-Length: 5"), (405, true));
    assert_eq!(expect("100-continue"), (405, false));
    assert_eq!(expect("200-ok"), (417, true));
}

#[test]
fn http_1_0_closes_unless_it_is_asked_not_to() {
    let site = site();
    let mut client = site.connect();
    let response = client.send("GET /a HTTP/1.0\r\n\r\n").response();
    assert_eq!(
        (response.text(), response.field("Connection")),
        ("aa", Some("close"))
    );
    client.assert_closed();
    let mut client = site.connect();
    for _ in 0..2 {
        let response = client
            .send("GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
            .response();
        assert_eq!(
            (response.text(), response.field("Connection")),
            ("aa", Some("keep-alive"))
        );
    }
}

#[test]
fn connection_close_is_honoured() {
    let site = site();
    let mut client = site.connect();
    let response = client.request("GET", "/a", "Connection: close\r\n");
    assert_eq!(
        (response.text(), response.field("Connection")),
        ("aa", Some("close"))
    );
    client.assert_closed();
}

#[test]
fn what_follows_a_request_to_close_does_not_cost_the_response() {
    let site = Site::new(&[("a", &vec![b'x'; 12_000])]);
    for _ in 0..20 {
        let mut client = site.connect();
        let request = "GET /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        client.send([request.as_bytes(), &[b'y'; 10_000]].concat());
        client.send([b'z'; 10_000]).half_close();
        assert_eq!(client.response().body.len(), 12_000);
        client.assert_closed();
    }
}

#[test]
fn a_client_that_has_closed_its_half_gets_the_whole_answer() {
    let large = vec![b'x'; 1_000_000];
    let site = Site::new(&[("a", b"aa"), ("large", &large)]);
    let mut client = site.connect();
    client
        .send(GET.replace("/a", "/large"))
        .send(GET)
        .half_close();
    assert_eq!(client.response().body.len(), large.len());
    assert_eq!(client.response().text(), "aa");
    client.assert_closed();
}

#[test]
fn the_target_may_be_absolute() {
    let site = site();
    assert_eq!(site.get("http://other.example/a").text(), "aa");
    assert_eq!(site.get("http://u@other/a").status, 400);
}

#[test]
fn random_bytes_never_crash_or_hang_the_server() {
    let site = site();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move || {
        // xorshift64*: the same bytes in each run
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    };
    let pieces = [
        "GET ",
        "HEAD ",
        "/a",
        "/",
        "%2e",
        "%00",
        " HTTP/1.1",
        "\r\n",
        "\n",
        "\r",
        "Host: a",
        ": ",
        "Content-Length: 3",
        "Transfer-Encoding: chunked",
        "0\r\n\r\n",
        "5\r\nabcde\r\n",
        "\0",
        "Connection: close",
        "If-None-Match: *",
        "Expect: 100-continue",
        "\u{ff}",
        "a",
    ];
    for _ in 0..400 {
        let count = next() % 24;
        let request: String = (0..count)
            .map(|_| pieces[usize::try_from(next()).unwrap() % pieces.len()])
            .collect();
        let mut client = site.connect();
        client.send(&request).half_close();
        client.rest();
    }
    assert_eq!(site.get("/a").text(), "aa");
    assert_eq!(metric(site.admin, "tunedweb_server_panics_total"), 0);
    eventually("every connection is closed", || {
        metric(site.admin, "tunedweb_server_connections_accepted_total")
            == metric(site.admin, "tunedweb_server_connections_closed_total")
    });
}

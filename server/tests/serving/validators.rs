//! ETag, Last-Modified and what clients make of them; the bytes they stand for.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use crate::site::{Client, DEADLINE, Site, etag_of, eventually, metric, replace};

/// Makes a file look as if it had not been changed for a minute.
fn settle(site: &Site, name: &str) {
    // times may be set back, the time of the change itself may not: wait for that
    let path = site.path(name);
    eventually("the file has settled", || {
        let changed = std::os::unix::fs::MetadataExt::ctime(&fs::metadata(&path).unwrap());
        let now = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap()
            .as_secs();
        now.saturating_sub(u64::try_from(changed).unwrap()) > 3
    });
}

#[test]
fn the_etag_depends_on_nothing_but_the_content() {
    let first = Site::new(&[("a", b"hello"), ("b", b"hello")]);
    let second = Site::new(&[("a", b"hello")]);
    let date = SystemTime::now() - Duration::from_hours(24);
    File::options()
        .write(true)
        .open(second.path("a"))
        .unwrap()
        .set_modified(date)
        .unwrap();
    let expected = etag_of(b"hello");
    for response in [first.get("/a"), first.get("/b"), second.get("/a")] {
        assert_eq!(response.field("ETag"), Some(&expected[..]));
    }
}

#[test]
fn last_modified_is_the_time_of_the_file_but_never_in_the_future() {
    let site = Site::new(&[("a", b"a"), ("b", b"b")]);
    let set = |name: &str, time| {
        File::options()
            .write(true)
            .open(site.path(name))
            .unwrap()
            .set_modified(time)
            .unwrap();
    };
    set(
        "a",
        SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777),
    );
    assert_eq!(
        site.get("/a").field("Last-Modified"),
        Some("Sun, 06 Nov 1994 08:49:37 GMT")
    );
    set("b", SystemTime::now() + Duration::from_hours(24));
    let response = site.get("/b");
    let date = |name| httpdate::parse_http_date(response.field(name).unwrap()).unwrap();
    assert!(date("Last-Modified") <= date("Date"));
}

#[test]
fn a_match_is_304_with_the_validators_and_without_a_body() {
    let site = Site::new(&[("a", b"hello")]);
    let mut client = site.connect();
    let full = client.get("/a");
    let (etag, modified) = (
        full.field("ETag").unwrap(),
        full.field("Last-Modified").unwrap(),
    );
    for fields in [
        format!("If-None-Match: {etag}\r\n"),
        format!("If-None-Match: \"x\", W/{etag}\r\n"),
        "If-None-Match: *\r\n".to_owned(),
        format!("If-Modified-Since: {modified}\r\n"),
        format!("If-None-Match: {etag}\r\nIf-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n"),
    ] {
        for method in ["GET", "HEAD"] {
            let response = client.request(method, "/a", &fields);
            assert_eq!(response.status, 304, "{fields}");
            assert_eq!(response.field("ETag"), Some(etag));
            assert_eq!(response.field("Last-Modified"), Some(modified));
            assert_eq!(response.field("Content-Length"), None);
        }
    }
    for fields in [
        "If-None-Match: \"x\"\r\n".to_owned(),
        format!("If-None-Match: \"x\"\r\nIf-Modified-Since: {modified}\r\n"),
        "If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n".to_owned(),
        format!("If-Match: {etag}\r\nIf-Unmodified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n"),
        "Range: bytes=0-1\r\n".to_owned(),
    ] {
        let response = client.request("GET", "/a", &fields);
        assert_eq!(
            (response.status, response.text()),
            (200, "hello"),
            "{fields}"
        );
    }
    assert_eq!(
        client.request("GET", "/a", "If-Match: \"x\"\r\n").status,
        412
    );
    assert_eq!(client.get("/a").field("Accept-Ranges"), None);
}

#[test]
fn a_large_file_gets_its_etag_when_it_has_settled() {
    let content = vec![b'x'; 200_000];
    let huge = vec![b'y'; 3_000_000];
    let site = Site::new(&[("large", &content), ("huge", &huge)]);
    settle(&site, "huge");
    assert_eq!(
        site.get("/large").field("ETag"),
        Some(&etag_of(&content)[..])
    );
    let expected = etag_of(&huge);
    eventually("the huge file is read through", || {
        site.get("/huge").field("ETag") == Some(&expected[..])
    });
    let fields = format!("If-None-Match: {expected}\r\n");
    assert_eq!(site.connect().request("GET", "/huge", &fields).status, 304);
}

#[test]
fn an_etag_never_disagrees_with_its_bytes_while_files_are_rewritten_in_place() {
    let site = Site::new(&[("small", b""), ("large", b"")]);
    let (small, large) = (site.path("small"), site.path("large"));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut small = File::options().write(true).open(&small).unwrap();
            let mut large = File::options().write(true).open(&large).unwrap();
            let mut number = 0_u32;
            while !stop.load(Ordering::Relaxed) {
                number += 1;
                let byte = b'a' + u8::try_from(number % 26).unwrap();
                let length = 500 + usize::try_from(number % 7).unwrap();
                for (file, length) in [(&mut small, length), (&mut large, 100_000 + length)] {
                    std::io::Seek::rewind(file).unwrap();
                    file.write_all(&vec![byte; length]).unwrap();
                    file.set_len(length as u64).unwrap();
                }
                std::thread::sleep(Duration::from_millis(u64::from(number % 5)));
            }
        });
        let readers: Vec<_> = ["/small", "/large"]
            .map(|target| {
                let site = &site;
                scope.spawn(move || read_for(site, target, Duration::from_secs(4)))
            })
            .into();
        let versions: Vec<usize> = readers
            .into_iter()
            .map(|reader| reader.join().unwrap())
            .collect();
        stop.store(true, Ordering::Relaxed);
        assert!(
            versions[0] > 2,
            "the small file did not change: {versions:?}"
        );
    });
}

/// Reads again and again, and holds each ETag against its bytes. A response may be cut short (the
/// file changed), but it must not look whole then.
fn read_for(site: &Site, target: &str, time: Duration) -> usize {
    let end = std::time::Instant::now() + time;
    let mut versions = std::collections::HashSet::new();
    let mut client = site.connect();
    while std::time::Instant::now() < end {
        client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let Ok(response) = client.try_response(false) else {
            client = site.connect();
            continue;
        };
        if let Some(etag) = response.field("ETag") {
            assert_eq!(etag, etag_of(&response.body), "{target}");
            versions.insert(etag.to_owned());
        }
    }
    versions.len()
}

#[test]
fn a_response_whose_file_is_rewritten_under_it_is_reset_not_completed() {
    let bytes = 60_000_000;
    let site = Site::new(&[("a", &vec![b'x'; bytes])]);
    let mut client = site.connect();
    client.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut start = vec![0; 100_000];
    client.stream.read_exact(&mut start).unwrap();
    let mut file = File::options().write(true).open(site.path("a")).unwrap();
    file.write_all(&[b'y'; 10]).unwrap();
    let mut received = start.len();
    let error = loop {
        let mut buffer = vec![0; 1 << 20];
        match client.stream.read(&mut buffer) {
            Ok(0) => break None,
            Ok(length) => received += length,
            Err(error) => break Some(error.kind()),
        }
    };
    assert_eq!(error, Some(std::io::ErrorKind::ConnectionReset));
    assert!(received < bytes, "{received}");
    assert_eq!(
        metric(site.admin, "tunedweb_server_responses_aborted_total"),
        1
    );
}

#[test]
fn a_response_under_way_survives_the_replacement_and_the_removal_of_its_file() {
    let bytes = 60_000_000;
    let site = Site::new(&[("a", &vec![b'x'; bytes]), ("b", &vec![b'x'; bytes])]);
    let mut clients = ["/a", "/b"].map(|target| {
        let mut client = Client::connect(site.address);
        client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        client.stream.set_read_timeout(Some(DEADLINE)).unwrap();
        client.stream.peek(&mut [0]).unwrap();
        client
    });
    replace(&site.path("a"), b"new");
    fs::remove_file(site.path("b")).unwrap();
    for client in &mut clients {
        let response = client.response();
        assert_eq!(response.body.len(), bytes);
        assert!(response.body.iter().all(|byte| *byte == b'x'));
    }
    eventually("the new content is served", || {
        site.get("/a").text() == "new"
    });
}

#[test]
fn a_replaced_file_is_served_whole_old_or_whole_new() {
    let site = Site::new(&[("a", b"0000")]);
    let path = site.path("a");
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| read_for(&site, "/a", Duration::from_secs(3)));
        let mut number = 0_u32;
        while !reader.is_finished() {
            number += 1;
            replace(&path, number.to_string().repeat(200).as_bytes());
            std::thread::sleep(Duration::from_millis(3));
        }
        assert!(reader.join().unwrap() > 2);
    });
}

//! Which file answers which path, and which path has none.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::Duration;

use crate::site::{Client, Site, eventually, metric};

#[test]
fn a_file_is_answered_with_its_type_length_and_bytes() {
    let site = Site::new(&[("a/b.html", b"<p>hello"), ("c", b"\0\xff")]);
    let response = site.get("/a/b.html?query");
    assert_eq!((response.status, response.text()), (200, "<p>hello"));
    assert_eq!(
        response.field("Content-Type"),
        Some("text/html; charset=utf-8")
    );
    assert_eq!(response.field("Content-Length"), Some("8"));
    assert!(response.field("Date").unwrap().ends_with(" GMT"));
    let response = site.get("/c");
    assert_eq!(response.body, b"\0\xff");
    assert_eq!(
        response.field("Content-Type"),
        Some("application/octet-stream")
    );
}

#[test]
fn head_has_the_fields_of_get_and_no_body() {
    let large = vec![b'x'; 200_000];
    let site = Site::new(&[("a", b"hello"), ("large", &large)]);
    let mut client = site.connect();
    for target in ["/a", "/large", "/none"] {
        let get = client.get(target);
        let head = client.request("HEAD", target, "");
        let without_date = |head: &str| {
            head.lines()
                .filter(|l| !l.starts_with("Date"))
                .map(String::from)
                .collect::<Vec<_>>()
        };
        assert_eq!(without_date(&head.head), without_date(&get.head));
    }
}

#[test]
fn a_folder_is_answered_with_its_index() {
    let site = Site::with_settings(
        &[
            ("index.html", b"root"),
            ("a/second.html", b"second"),
            ("b/x", b"x"),
        ],
        |settings| settings.server.index = vec!["index.html".into(), "second.html".into()],
    );
    assert_eq!(site.get("/").text(), "root");
    assert_eq!(site.get("/a/").text(), "second");
    assert_eq!(site.get("/b/").status, 403);
    assert_eq!(site.get("/c/").status, 404);
}

#[test]
fn a_folder_without_its_slash_is_redirected_within_the_origin() {
    let site = Site::new(&[("a b/index.html", b"x"), ("evil.example/index.html", b"x")]);
    for (target, location) in [
        ("/a%20b", "/a%20b/"),
        ("/a%20b?x=1&y=%20", "/a%20b/?x=1&y=%20"),
        ("//evil.example", "/evil.example/"),
        ("///evil.example", "/evil.example/"),
        ("/./evil.example", "/evil.example/"),
        ("http://other/evil.example", "/evil.example/"),
    ] {
        let response = site.get(target);
        assert_eq!(
            (response.status, response.field("Location")),
            (301, Some(location)),
            "{target}"
        );
    }
    assert_eq!(site.get("/%5Cevil.example").status, 404);
}

#[test]
fn what_is_not_there_is_404_and_the_connection_stays() {
    let site = Site::new(&[("a", b"a")]);
    let mut client = site.connect();
    for target in ["/none", "/a/", "/a/b", "/none/", "/%2fa", "/a%2f"] {
        assert_eq!(client.get(target).status, 404, "{target}");
    }
    assert_eq!(client.get("/a").status, 200);
}

#[test]
fn other_methods_are_told_what_is_allowed() {
    let site = Site::new(&[("a", b"a")]);
    let mut client = site.connect();
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH"] {
        let response = client.request(method, "/a", "");
        assert_eq!(
            (response.status, response.field("Allow")),
            (405, Some("GET, HEAD")),
            "{method}"
        );
    }
    assert_eq!(client.request("BREW", "/a", "").status, 501);
    assert_eq!(client.request("OPTIONS", "*", "").status, 405);
    assert_eq!(client.request("CONNECT", "a:80", "").status, 405);
    assert_eq!(client.get("/a").status, 200);
}

#[test]
fn dotfiles_are_hidden_however_they_are_written() {
    let site = Site::new(&[
        (".git/config", b"secret"),
        ("a/.env", b"secret"),
        ("a/b", b"b"),
    ]);
    let mut client = site.connect();
    for target in [
        "/.git/config",
        "/%2egit/config",
        "/a/.env",
        "/a/%2Eenv",
        "/a/../.git/config",
        "//.git/config",
        "/.git",
        "/.git/",
        "/x/%2e%2e/.git/config",
    ] {
        assert_eq!(client.get(target).status, 404, "{target}");
    }
    assert_eq!(client.get("/.git/../a/./b").text(), "b");
}

#[test]
fn links_that_lead_out_of_the_root_are_not_followed() {
    let site = Site::new(&[("a", b"a")]);
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret"), "secret").unwrap();
    symlink(outside.path().join("secret"), site.path("file")).unwrap();
    symlink(outside.path(), site.path("folder")).unwrap();
    symlink("../../../../../../etc/hostname", site.path("up")).unwrap();
    symlink("loop", site.path("loop")).unwrap();
    symlink("a", site.path("within")).unwrap();
    let mut client = site.connect();
    for target in [
        "/file",
        "/folder/secret",
        "/folder/",
        "/folder",
        "/up",
        "/loop",
    ] {
        assert_eq!(client.get(target).status, 404, "{target}");
    }
    assert_eq!(client.get("/within").text(), "a");
}

#[test]
fn a_path_beyond_the_root_is_refused() {
    let site = Site::new(&[("a", b"a")]);
    for target in [
        "/../a",
        "/..",
        "/%2e%2e/a",
        "/a/../../a",
        "/%00",
        "/a%",
        "/%zz",
        "/a#b",
    ] {
        let mut client = site.connect();
        assert_eq!(client.get(target).status, 400, "{target}");
        client.assert_closed();
    }
}

#[test]
fn the_layout_of_a_mounted_config_map_is_served() {
    let site = Site::new(&[
        ("..2026_01/index.html", b"one"),
        ("..2026_02/index.html", b"two"),
    ]);
    symlink("..2026_01", site.path("..data")).unwrap();
    symlink("..data/index.html", site.path("index.html")).unwrap();
    assert_eq!(site.get("/").text(), "one");
    for target in [
        "/..data/index.html",
        "/..2026_01/index.html",
        "/%2e.data/index.html",
    ] {
        assert_eq!(site.get(target).status, 404, "{target}");
    }
    let mut client = site.connect();
    symlink("..2026_02", site.path("..data_tmp")).unwrap();
    fs::rename(site.path("..data_tmp"), site.path("..data")).unwrap();
    let took = eventually("the switched content is served", || {
        client.get("/").text() == "two"
    });
    // a second, and what a busy machine adds
    assert!(took < Duration::from_secs(3), "{took:?}");
}

#[test]
fn new_and_removed_files_are_noticed_within_a_second() {
    let site = Site::new(&[("a", b"a")]);
    assert_eq!(site.get("/a").status, 200);
    assert_eq!(site.get("/b").status, 404);
    site.write("b", "b");
    assert_eq!(site.get("/b").status, 200);
    fs::remove_file(site.path("a")).unwrap();
    let took = eventually("the removed file is gone", || site.get("/a").status == 404);
    assert!(took < Duration::from_secs(3), "{took:?}");
}

#[test]
fn what_is_asked_for_again_comes_out_of_the_cache() {
    let site = Site::with_settings(&[("a", b"a")], |settings| settings.server.workers = Some(1));
    let mut client = site.connect();
    for _ in 0..100 {
        assert_eq!(client.get("/a").text(), "a");
    }
    assert!(metric(site.admin, "tunedweb_server_cache_hits_total") >= 90);
    assert!(metric(site.admin, "tunedweb_server_cache_misses_total") >= 1);
    assert_eq!(metric(site.admin, "tunedweb_server_cache_entries"), 1);
}

#[test]
fn the_cache_is_bounded_and_counts_what_it_drops() {
    let names: Vec<String> = (0..40).map(|number| format!("f{number}")).collect();
    let files: Vec<(&str, &[u8])> = names
        .iter()
        .map(|name| (&name[..], name.as_bytes()))
        .collect();
    let site = Site::with_settings(&files, |settings| {
        settings.server.open_file_cache.max_entries = 10;
    });
    let mut client = site.connect();
    for name in names.iter().cycle().take(200) {
        assert_eq!(client.get(&format!("/{name}")).text(), *name);
    }
    assert!(metric(site.admin, "tunedweb_server_cache_entries") <= 10);
    assert!(metric(site.admin, "tunedweb_server_cache_evictions_total") >= 30);
}

#[test]
fn without_a_cache_every_request_opens_its_file() {
    let large = vec![b'x'; 300_000];
    let site = Site::with_settings(&[("a", b"a"), ("large", &large)], |settings| {
        settings.server.open_file_cache.max_entries = 0;
    });
    let mut client = site.connect();
    for _ in 0..3 {
        assert_eq!(client.get("/a").text(), "a");
        assert_eq!(client.get("/large").body, large);
    }
    site.write("a", "b");
    assert_eq!(client.get("/a").text(), "b");
    assert_eq!(metric(site.admin, "tunedweb_server_cache_hits_total"), 0);
}

#[test]
fn large_files_arrive_whole_on_many_connections_at_once() {
    let large: Vec<u8> = (0..9_000_007_u32)
        .map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    let site = Site::new(&[("large", &large), ("small", b"small")]);
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                let mut client: Client = site.connect();
                for _ in 0..2 {
                    assert!(client.get("/large").body == large, "the bytes differ");
                    assert_eq!(client.get("/small").text(), "small");
                }
            });
        }
    });
}

#[test]
fn names_that_need_encoding_are_served() {
    let site = Site::new(&[("ä [1] + 100%.txt", b"x"), ("a?b", b"y")]);
    assert_eq!(site.get("/%C3%A4%20%5B1%5D%20+%20100%25.txt").text(), "x");
    assert_eq!(site.get("/a%3Fb").text(), "y");
}

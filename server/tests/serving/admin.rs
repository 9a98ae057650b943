//! The admin endpoint: what probes, scrapers and the operator read.

use std::io::Read;
use std::time::Duration;

use tunedweb_config::{TuningReport, WorkersSource};

use crate::site::{Client, DEADLINE, Site, eventually, metric};

#[test]
fn a_server_that_serves_is_healthy_and_ready() {
    let site = Site::new(&[]);
    for target in ["/healthz", "/readyz"] {
        let response = Client::connect(site.admin).get(target);
        assert_eq!(
            (response.status, response.text()),
            (200, "ok\n"),
            "{target}"
        );
    }
    assert_eq!(Client::connect(site.admin).get("/none").status, 404);
    assert_eq!(
        Client::connect(site.admin)
            .request("POST", "/readyz", "")
            .status,
        405
    );
    assert_eq!(site.get("/readyz").status, 404);
}

#[test]
fn requests_are_counted_exactly_by_class() {
    let site = Site::new(&[("a", b"a")]);
    let etag = site.get("/a").field("ETag").unwrap().to_owned();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut client = site.connect();
                for _ in 0..250 {
                    client.get("/a");
                }
                client.get("/none");
                client.request("GET", "/a", &format!("If-None-Match: {etag}\r\n"));
                client.send("nonsense\r\n\r\n").response();
            });
        }
    });
    let count = |class: &str| {
        metric(
            site.admin,
            &format!("tunedweb_server_requests_total{{status=\"{class}\"}}"),
        )
    };
    assert_eq!(
        [count("2xx"), count("3xx"), count("4xx"), count("5xx")],
        [2_001, 8, 16, 0]
    );
    assert_eq!(metric(site.admin, "tunedweb_server_requests_total"), 2_025);
    assert!(metric(site.admin, "tunedweb_server_sent_bytes_total") > 2_025 * 100);
    assert_eq!(
        metric(site.admin, "tunedweb_server_connections_accepted_total"),
        9
    );
}

#[test]
fn open_connections_are_shown_by_state() {
    let site = Site::new(&[("a", b"a"), ("large", &vec![b'x'; 30_000_000])]);
    let mut idle = site.connect();
    idle.get("/a");
    let mut reading = site.connect();
    reading.send("GET /a");
    let mut writing = site.connect();
    writing.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
    for state in ["idle", "reading", "writing"] {
        let name = format!("tunedweb_server_connections{{state=\"{state}\"}}");
        eventually(state, || metric(site.admin, &name) == 1);
    }
}

#[test]
fn tuning_tells_what_was_asked_and_what_was_reached() {
    let site = Site::with_settings(&[], |settings| {
        settings.server.listener.backlog = 7;
        settings.server.max_connections_per_worker = 9;
    });
    let response = Client::connect(site.admin).get("/tuning");
    assert_eq!(response.field("Content-Type"), Some("application/json"));
    let report: TuningReport = serde_json::from_slice(&response.body).unwrap();
    assert_eq!(report.listen, site.address);
    assert_eq!(
        (report.workers.running, report.workers.source),
        (2, WorkersSource::Settings)
    );
    // seven, unless this machine permits fewer
    let somaxconn = report.backlog.somaxconn.unwrap();
    assert_eq!(report.backlog.effective, somaxconn.min(7));
    assert_eq!(report.max_connections_per_worker.effective, 9);
    assert_eq!(report.nofile.soft, report.nofile.hard);
    assert!(
        report
            .shortfalls
            .iter()
            .all(|s| s.setting == "server.listener.backlog")
    );
    assert_eq!(report.settings.server.max_connections_per_worker, 9);
}

#[test]
fn an_unreachable_wish_is_a_shortfall() {
    let somaxconn: u32 = std::fs::read_to_string("/proc/sys/net/core/somaxconn")
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    let site = Site::with_settings(&[], |settings| {
        settings.server.listener.backlog = 65_535;
        settings.server.max_connections_per_worker = 1_048_576;
    });
    let report: TuningReport =
        serde_json::from_slice(&Client::connect(site.admin).get("/tuning").body).unwrap();
    assert_eq!(report.backlog.effective, somaxconn.min(65_535));
    let short_of = |setting: &str| report.shortfalls.iter().any(|s| s.setting == setting);
    assert_eq!(short_of("server.listener.backlog"), somaxconn < 65_535);
    assert!(short_of("server.maxConnectionsPerWorker"));
}

#[test]
fn silent_admin_clients_are_closed_and_do_not_keep_others_out() {
    let site = Site::new(&[]);
    let mut silent: Vec<Client> = (0..64).map(|_| Client::connect(site.admin)).collect();
    silent[0].stream.set_read_timeout(Some(DEADLINE)).unwrap();
    // 5 s for a head
    let closed = silent[0].stream.read(&mut [0]);
    assert!(matches!(closed, Ok(0)), "{closed:?}");
    eventually("there is room again", || {
        let mut client = Client::connect(site.admin);
        client
            .stream
            .set_read_timeout(Some(Duration::from_secs(1)))
            .unwrap();
        client.send("GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n");
        client
            .try_response(false)
            .is_ok_and(|response| response.status == 200)
    });
}

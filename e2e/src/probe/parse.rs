//! What the programs that look print.

/// Limits of open files (`RLIMIT_NOFILE`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenFiles {
    /// What the kernel enforces.
    pub soft: u64,
    /// How far the process may raise it by itself.
    pub hard: u64,
}

/// A fetched page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// Status code.
    pub status: u16,
    /// Fields of the head, names in lower case, in their order.
    pub fields: Vec<(String, String)>,
    /// What came after the head.
    pub body: String,
}

impl Fetched {
    /// The first field of a name given in lower case.
    pub fn field(&self, name: &str) -> Option<&str> {
        let (_, value) = self.fields.iter().find(|(known, _)| known == name)?;
        Some(value)
    }
}

/// `/proc/PID/limits` (proc(5)): the name in words, then soft limit, hard limit and unit.
pub(super) fn open_files(limits: &str) -> Option<OpenFiles> {
    let mut values = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?
        .split_whitespace();
    let mut number = || match values.next()? {
        "unlimited" => Some(u64::MAX),
        text => text.parse().ok(),
    };
    Some(OpenFiles {
        soft: number()?,
        hard: number()?,
    })
}

/// `ss -ltnH`: state, Recv-Q, Send-Q, local address and port, peer.
pub(super) fn backlogs(sockets: &str, port: u16) -> Vec<u32> {
    let suffix = format!(":{port}");
    sockets
        .lines()
        .filter_map(|line| {
            let mut columns = line.split_whitespace().skip(2);
            let (backlog, local) = (columns.next()?, columns.next()?);
            local.ends_with(&suffix).then(|| backlog.parse().ok())?
        })
        .collect()
}

/// `ctr tasks ls`: id, number, state.
pub(super) fn pid_of_task(tasks: &str, id: &str) -> Option<u32> {
    tasks.lines().find_map(|line| {
        let mut columns = line.split_whitespace();
        (columns.next()? == id).then(|| columns.next()?.parse().ok())?
    })
}

/// `curl -i`: each head ends with an empty line; a head of the 1xx class is followed by another.
pub(super) fn response(text: &str) -> Option<Fetched> {
    let (head, body) = text.split_once("\r\n\r\n")?;
    let mut lines = head.lines();
    let status = lines.next()?.split_whitespace().nth(1)?.parse().ok()?;
    if (100..200).contains(&status) {
        return response(body);
    }
    let fields = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    Some(Fetched {
        status,
        fields,
        body: body.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: &str = "\
Limit                     Soft Limit           Hard Limit           Units
Max processes             95884                unlimited            processes
Max open files            16384                1048576              files
Max locked memory         8388608              8388608              bytes
";

    #[test]
    fn open_files_are_found_among_the_limits() {
        assert_eq!(
            open_files(LIMITS),
            Some(OpenFiles {
                soft: 16_384,
                hard: 1_048_576
            })
        );
        assert_eq!(open_files("Max processes 1 2 processes"), None);
        let unlimited = open_files("Max open files  1024  unlimited  files").unwrap();
        assert_eq!(unlimited.hard, u64::MAX);
    }

    #[test]
    fn each_listening_socket_of_the_port_shows_its_backlog() {
        let sockets = "\
LISTEN 0      65535        0.0.0.0:8080      0.0.0.0:*
LISTEN 0      65535        0.0.0.0:8080      0.0.0.0:*
LISTEN 0      128          0.0.0.0:18080     0.0.0.0:*
LISTEN 3      1024            [::]:9180         [::]:*
";
        assert_eq!(backlogs(sockets, 8080), [65_535, 65_535]);
        assert_eq!(backlogs(sockets, 9180), [1024]);
        assert_eq!(backlogs(sockets, 80), [0_u32; 0]);
    }

    #[test]
    fn a_task_is_found_by_its_whole_id() {
        let tasks = "TASK    PID     STATUS\nabcd    412     RUNNING\nabc     97      STOPPED\n";
        assert_eq!(pid_of_task(tasks, "abc"), Some(97));
        assert_eq!(pid_of_task(tasks, "ab"), None);
    }

    #[test]
    fn a_response_is_split_into_status_fields_and_body() {
        let text =
            "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nETag: \"a:b\"\r\n\r\n<p>\r\n\r\nx";
        let fetched = response(text).unwrap();
        assert_eq!(fetched.status, 200);
        assert_eq!(fetched.field("content-type"), Some("text/html"));
        assert_eq!(fetched.field("etag"), Some("\"a:b\""));
        assert_eq!(fetched.body, "<p>\r\n\r\nx");
    }

    #[test]
    fn a_head_that_does_not_end_is_no_response() {
        assert_eq!(
            response("HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\n"),
            None
        );
    }

    #[test]
    fn an_interim_response_is_passed_over() {
        let fetched = response("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n");
        assert_eq!(fetched.unwrap().status, 204);
    }
}

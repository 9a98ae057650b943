//! Host and authority (RFC 9110 section 7.2, RFC 3986 section 3.2).

/// Whether `host` is a non-empty `uri-host [ ":" port ]`.
pub(crate) fn is_valid(host: &[u8]) -> bool {
    let (name, port) = if let Some(rest) = host.strip_prefix(b"[") {
        let Some(end) = rest.iter().position(|&byte| byte == b']') else {
            return false;
        };
        (Name::Address(&rest[..end]), &rest[end + 1..])
    } else {
        let end = host
            .iter()
            .position(|&byte| byte == b':')
            .unwrap_or(host.len());
        (Name::Registered(&host[..end]), &host[end..])
    };
    name.is_valid() && is_port(port)
}

enum Name<'a> {
    /// Between brackets: IPv6, or a future version of IP.
    Address(&'a [u8]),
    Registered(&'a [u8]),
}

impl Name<'_> {
    fn is_valid(&self) -> bool {
        match self {
            Self::Address(text) => {
                !text.is_empty()
                    && text
                        .iter()
                        .all(|byte| byte.is_ascii_hexdigit() || b":.vV%-_~".contains(byte))
            }
            Self::Registered(text) => {
                !text.is_empty()
                    && text.iter().all(|byte| {
                        byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+,;=".contains(byte)
                    })
            }
        }
    }
}

/// Nothing, or a colon and at most 65535. An empty port is permitted (RFC 3986 section 3.2.3).
fn is_port(text: &[u8]) -> bool {
    let Some((colon, digits)) = text.split_first() else {
        return true;
    };
    *colon == b':'
        && digits.iter().all(u8::is_ascii_digit)
        && digits.iter().fold(0_u32, |sum, digit| {
            sum.saturating_mul(10)
                .saturating_add(u32::from(digit - b'0'))
        }) <= 65_535
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_addresses_and_ports_are_valid() {
        for host in [
            "a",
            "a.example:80",
            "127.0.0.1:65535",
            "[::1]",
            "[::1]:8080",
            "a:",
            "x_y",
        ] {
            assert!(is_valid(host.as_bytes()), "{host}");
        }
    }

    #[test]
    fn what_is_no_host_is_refused() {
        for host in [
            "",
            ":80",
            "a b",
            "u@h",
            "a/b",
            "a:65536",
            "a:99999999999",
            "a:-1",
            "[::1",
            "[]",
            "[::1]x",
        ] {
            assert!(!is_valid(host.as_bytes()), "{host}");
        }
    }
}

//! The request target (RFC 9112 section 3.2) and the path in it.

use std::borrow::Cow;

use super::host;

/// The path asked for, ready to be looked up, and the query as it was sent.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Target<'a> {
    /// Starts with a slash; decoded, slashes merged, dot segments resolved. Borrowed when the
    /// target needed none of this, which is the usual case.
    pub(crate) path: Cow<'a, [u8]>,
    /// What followed the first `?`.
    pub(crate) query: Option<&'a [u8]>,
}

/// Why a target names nothing that is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TargetError {
    /// Not a target, or one that leaves the root: 400.
    Malformed,
    /// Names a hidden file, or a file whose name holds a slash, which none can: 404.
    Hidden,
}

impl<'a> Target<'a> {
    /// Reads the origin form or the absolute form.
    ///
    /// A `%2F` is a slash *within* a name: it never separates folders, and since no file name can
    /// hold one, nothing is found. A component that starts with a dot is hidden, after `.` and `..`
    /// are resolved; a `..` beyond the root is malformed.
    pub(crate) fn parse(target: &'a [u8]) -> Result<Self, TargetError> {
        let target = if target.first() == Some(&b'/') {
            target
        } else {
            origin_form(target)?
        };
        if target.contains(&b'#') {
            return Err(TargetError::Malformed);
        }
        let (path, query) = match target.iter().position(|&byte| byte == b'?') {
            Some(at) => (&target[..at], Some(&target[at + 1..])),
            None => (target, None),
        };
        let path = if path.is_empty() {
            Cow::Borrowed(&b"/"[..])
        } else if is_plain(path) {
            Cow::Borrowed(path)
        } else {
            Cow::Owned(resolve(path)?)
        };
        Ok(Self { path, query })
    }
}

/// Path and query of an absolute form. Its authority stands in for the Host field (RFC 9112 section
/// 3.2.2); one site is served, so nothing depends on it.
fn origin_form(target: &[u8]) -> Result<&[u8], TargetError> {
    let rest = ["http://", "https://"]
        .iter()
        .find(|scheme| {
            target
                .get(..scheme.len())
                .is_some_and(|t| t.eq_ignore_ascii_case(scheme.as_bytes()))
        })
        .map(|scheme| &target[scheme.len()..])
        .ok_or(TargetError::Malformed)?;
    let end = rest
        .iter()
        .position(|byte| b"/?#".contains(byte))
        .unwrap_or(rest.len());
    if host::is_valid(&rest[..end]) {
        Ok(&rest[end..])
    } else {
        Err(TargetError::Malformed)
    }
}

/// Whether `path` is already what [`resolve`] would return.
fn is_plain(path: &[u8]) -> bool {
    path.first() == Some(&b'/')
        && !path.contains(&b'%')
        && path
            .windows(2)
            .all(|pair| pair[0] != b'/' || (pair[1] != b'/' && pair[1] != b'.'))
}

fn resolve(path: &[u8]) -> Result<Vec<u8>, TargetError> {
    let mut resolved: Vec<u8> = Vec::with_capacity(path.len());
    let mut hidden = false;
    let mut segments = path.split(|&byte| byte == b'/').skip(1).peekable();
    if path.first() != Some(&b'/') {
        return Err(TargetError::Malformed);
    }
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        let name = decode(segment)?;
        match &name[..] {
            b"" | b"." => {}
            b".." => {
                // each name was pushed with a slash before it, so the last one starts there
                let parent = resolved
                    .iter()
                    .rposition(|&b| b == b'/')
                    .ok_or(TargetError::Malformed)?;
                resolved.truncate(parent);
            }
            name => {
                hidden |= name.contains(&b'/');
                resolved.push(b'/');
                resolved.extend_from_slice(name);
            }
        }
        if is_last && matches!(&name[..], b"" | b"." | b"..") {
            resolved.push(b'/');
        }
    }
    hidden |= resolved.windows(2).any(|pair| pair == b"/.");
    if hidden {
        Err(TargetError::Hidden)
    } else {
        Ok(resolved)
    }
}

/// Percent-decodes one segment. NUL cannot be part of a file name (path_resolution(7)).
fn decode(segment: &[u8]) -> Result<Cow<'_, [u8]>, TargetError> {
    if !segment.contains(&b'%') {
        return Ok(Cow::Borrowed(segment));
    }
    let mut decoded = Vec::with_capacity(segment.len());
    let mut bytes = segment.iter();
    while let Some(&byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let mut digit = || bytes.next().and_then(|&b| char::from(b).to_digit(16));
        let value = digit().zip(digit()).map(|(high, low)| high * 16 + low);
        match value.and_then(|value| u8::try_from(value).ok()) {
            None | Some(0) => return Err(TargetError::Malformed),
            Some(byte) => decoded.push(byte),
        }
    }
    Ok(Cow::Owned(decoded))
}

/// Appends `path` percent-encoded, so that a `Location` made from it stays a path of this origin
/// (RFC 3986 section 3.3): no control character, no backslash that a browser would turn into a
/// slash.
pub(crate) fn encode(path: &[u8], out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in path {
        if byte.is_ascii_alphanumeric() || b"/-._~!$&'()*+,;=:@".contains(&byte) {
            out.push(byte);
        } else {
            out.extend([
                b'%',
                HEX[usize::from(byte >> 4)],
                HEX[usize::from(byte & 15)],
            ]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn path(target: &str) -> Result<String, TargetError> {
        Target::parse(target.as_bytes())
            .map(|target| String::from_utf8_lossy(&target.path).into_owned())
    }

    #[test]
    fn plain_paths_are_borrowed() {
        let target = Target::parse(b"/a/b.html?x=1").unwrap();
        assert!(matches!(target.path, Cow::Borrowed(b"/a/b.html")));
        assert_eq!(target.query, Some(&b"x=1"[..]));
    }

    #[test]
    fn dots_and_double_slashes_are_resolved() {
        for (target, expected) in [
            ("/", "/"),
            ("//", "/"),
            ("//b", "/b"),
            ("/./b", "/b"),
            ("/a/../b", "/b"),
            ("/a/%2e%2e/b", "/b"),
            ("/a//b/", "/a/b/"),
            ("/a/.", "/a/"),
            ("/a/b/..", "/a/"),
            ("/a/..", "/"),
            ("/%41", "/A"),
            ("/a%20b", "/a b"),
            ("http://other/p?q", "/p"),
            ("HTTP://other", "/"),
            ("https://other:443?q", "/"),
        ] {
            assert_eq!(path(target).as_deref(), Ok(expected), "{target}");
        }
    }

    #[test]
    fn what_leaves_the_root_or_is_no_path_is_malformed() {
        for target in [
            "/..",
            "/../x",
            "/%2e%2e/x",
            "/a/../../x",
            "/%00",
            "/%",
            "/%zz",
            "/%4",
            "/a#b",
            "a",
            "*",
            "ftp://h/",
            "http://",
            "http://u@h/",
            "http:///x",
            "/?#",
        ] {
            assert_eq!(path(target), Err(TargetError::Malformed), "{target}");
        }
    }

    #[test]
    fn dotfiles_and_encoded_slashes_are_hidden() {
        for target in [
            "/.git/x",
            "/%2egit/config",
            "/..data/x",
            "/a/.b",
            "/...",
            "/%2fb",
            "/a%2Fb",
            "/.a/",
        ] {
            assert_eq!(path(target), Err(TargetError::Hidden), "{target}");
        }
    }

    #[test]
    fn a_hidden_folder_that_is_left_again_is_not_hidden() {
        assert_eq!(path("/.git/../b").as_deref(), Ok("/b"));
    }

    #[test]
    fn encoding_keeps_a_location_on_this_origin() {
        let mut out = Vec::new();
        encode(b"/a\\b\r\n%/\xff?", &mut out);
        assert_eq!(out, b"/a%5Cb%0D%0A%25/%FF%3F");
    }

    proptest! {
        #[test]
        fn no_target_yields_a_path_with_a_dot_component(target in "[/.%2efEF0a]{0,24}") {
            if let Ok(target) = Target::parse(format!("/{target}").as_bytes()) {
                prop_assert!(target.path.starts_with(b"/"));
                prop_assert!(!target.path.windows(2).any(|p| p == b"/." || p == b"//"));
            }
        }

        #[test]
        fn encoded_paths_decode_to_themselves(name in prop::collection::vec(1_u8.., 1..20)) {
            prop_assume!(!name.contains(&b'/') && name[0] != b'.');
            let path = [b"/", &name[..]].concat();
            let mut encoded = Vec::new();
            encode(&path, &mut encoded);
            prop_assert_eq!(&*Target::parse(&encoded).unwrap().path, &path[..]);
        }
    }
}

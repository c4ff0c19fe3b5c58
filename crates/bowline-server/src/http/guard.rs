//! Protects the server from web pages in a browser.
//!
//! A browser sends requests for any page that a person opens, and it reaches what the person's machine
//! reaches: a server on loopback or behind a firewall. The server asks for no password, so it must tell such
//! a request from those of its clients. It uses what a browser always sends and a page cannot change:
//!
//! | a page tries | the evidence |
//! |---|---|
//! | to write: a form, `fetch` with one of the three types that need no permission | `Origin`, `Sec-Fetch-Site`, or the content type |
//! | `fetch` with `application/json` | the browser first sends `OPTIONS`, and nothing here permits it |
//! | to read: it names itself by a host that then resolves to the server (DNS rebinding) | `Host` is a foreign name |
//! | to speak gRPC, where after rebinding the type alone would pass | browsers speak no HTTP/2 without TLS, and gRPC requires HTTP/2 |
//!
//! The gateway accepts only `application/json` as JSON ([`Body::of`]). The one exception is for etcd's own
//! documentation, which tells people to type `curl -d '{…}'`: curl declares that body a form. A form, or a
//! body without a type, is accepted if nothing hints at a browser: no `Origin`, `Referer` or `Cookie`, no
//! `Sec-Fetch-…`, and a `User-Agent` that is not a browser's. Browsers send `Origin` with every `POST` and
//! are called `Mozilla/…`; a page that sets another name needs permission for that header. `text/plain` and
//! `multipart/form-data`, the other two types that pages may send, are never accepted: no client of etcd
//! sends them.
//!
//! Invariants:
//!
//! - Every request that is not gRPC passes [`Guard::check`] before any other code handles it.
//! - An IP address is accepted as the host: a page that is addressed by a number comes from that very
//!   machine. Only a name can be pointed elsewhere.
//! - A request without a host is not from a browser.

use http::{HeaderMap, Request, Response, StatusCode, Uri, header};
use tonic::body::Body as ReplyBody;

use super::reply::{TEXT, reply};
use crate::hosts::Hosts;

/// Whether a body counts as JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Body {
    Json,
    /// Names what to send.
    Refused(&'static str),
}

impl Body {
    /// Decides by the content type and, for a form or no type, by whether a browser may have sent it.
    pub(crate) fn of(headers: &HeaderMap) -> Body {
        let mut types = headers.get_all(header::CONTENT_TYPE).iter();
        let (first, second) = (types.next(), types.next());
        let is = |wanted: &str| {
            let text = first.and_then(|value| value.to_str().ok()).unwrap_or("");
            let essence = text.split(';').next().unwrap_or_default();
            essence.trim().eq_ignore_ascii_case(wanted)
        };
        if second.is_none() && is("application/json") {
            return Body::Json;
        }
        let is_curls = first.is_none() || is("application/x-www-form-urlencoded");
        if second.is_none() && is_curls {
            return match hints_at_browser(headers) {
                false => Body::Json,
                true => Body::Refused(
                    "a browser has to send JSON with the content type application/json",
                ),
            };
        }
        Body::Refused("send JSON with the content type application/json")
    }
}

fn hints_at_browser(headers: &HeaderMap) -> bool {
    let is_browser = |value: &http::HeaderValue| {
        let start = value.as_bytes().get(..7).unwrap_or_default();
        start.eq_ignore_ascii_case(b"mozilla")
    };
    let mut agents = headers.get_all(header::USER_AGENT).iter();
    [header::ORIGIN, header::REFERER, header::COOKIE]
        .iter()
        .any(|name| headers.contains_key(name))
        || headers.keys().any(|name| name.as_str().starts_with("sec-"))
        || agents.any(is_browser)
}

/// The check of hosts and origins.
#[derive(Debug, Clone)]
pub(crate) struct Guard {
    hosts: Hosts,
}

impl Guard {
    pub(crate) fn new(hosts: Hosts) -> Guard {
        Guard { hosts }
    }

    /// The refusal of a request that may come from a foreign page.
    pub(crate) fn check<B>(&self, request: &Request<B>) -> Option<Response<ReplyBody>> {
        let refused = match self.refusal(request.uri(), request.headers())? {
            Refusal::Host(host) => (
                StatusCode::MISDIRECTED_REQUEST,
                format!(
                    "{} is not a host of this server: use its address, or a name that \
                     --host-whitelist lists\n",
                    host.escape_debug()
                ),
            ),
            Refusal::Page => (
                StatusCode::FORBIDDEN,
                "a page of another origin may not ask this server\n".to_owned(),
            ),
        };
        Some(reply(refused.0, TEXT, refused.1))
    }

    fn refusal(&self, uri: &Uri, headers: &HeaderMap) -> Option<Refusal> {
        // Of the target and of the header: a request may have both, and either could be trusted later.
        let target = uri.authority().map(http::uri::Authority::as_str);
        let mut host = target;
        for value in headers.get_all(header::HOST) {
            let Ok(text) = value.to_str() else {
                return Some(Refusal::Host("(not text)".to_owned()));
            };
            if host.is_some_and(|known| !known.eq_ignore_ascii_case(text)) {
                return Some(Refusal::Host(text.to_owned()));
            }
            host = Some(text);
        }
        if let Some(host) = host.filter(|host| !self.hosts.contain(host)) {
            return Some(Refusal::Host(host.to_owned()));
        }
        let is_own = |value: &http::HeaderValue| {
            let origin = value.to_str().ok();
            let origin = origin.and_then(|text| text.split_once("://"));
            origin.is_some_and(|(scheme, origin)| {
                let port = if scheme == "https" { ":443" } else { ":80" };
                host.is_some_and(|host| same_authority(origin, host, port))
            })
        };
        if !headers.get_all(header::ORIGIN).iter().all(is_own) {
            return Some(Refusal::Page);
        }
        // `none` means that a person typed the URL.
        let is_ours =
            |value: &http::HeaderValue| matches!(value.as_bytes(), b"same-origin" | b"none");
        let sites = headers.get_all("sec-fetch-site");
        (!sites.iter().all(is_ours)).then_some(Refusal::Page)
    }
}

enum Refusal {
    Host(String),
    Page,
}

/// Whether two authorities are equal; either may omit the default port of its scheme.
fn same_authority(one: &str, other: &str, default_port: &str) -> bool {
    let short = |text: &str| {
        text.strip_suffix(default_port)
            .unwrap_or(text)
            .to_ascii_lowercase()
    };
    short(one) == short(other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::url::{Url, parse_url};

    fn guard(listed: &str) -> Guard {
        let urls = ["http://localhost:2379", "http://Etcd-0.example:2379"];
        let urls: Vec<Url> = urls.iter().map(|url| parse_url(url).unwrap()).collect();
        Guard::new(Hosts::new(urls.iter().map(|url| &*url.host), listed))
    }

    fn status(guard: &Guard, target: &str, headers: &[(&str, &str)]) -> u16 {
        let mut request = Request::post(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let refused = guard.check(&request.body(()).unwrap());
        refused.map_or(200, |response| response.status().as_u16())
    }

    #[test]
    fn a_host_is_an_address_or_a_name_of_the_server() {
        let guard = guard("other.example");
        for host in [
            "localhost:2379",
            "LOCALHOST",
            "127.0.0.1:2379",
            "10.1.2.3",
            "[::1]:2379",
            "[fe80::1]",
            "etcd-0.example:2379",
            "other.example",
        ] {
            assert_eq!(status(&guard, "/metrics", &[("host", host)]), 200, "{host}");
        }
        for host in [
            "evil.example:2379",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "evil.example.",
            "localhost:2379@evil.example",
            "evil.example:2379:2379",
            "::1.evil.example",
            "[evil]",
            "",
        ] {
            assert_eq!(status(&guard, "/metrics", &[("host", host)]), 421, "{host}");
        }
        assert_eq!(status(&guard, "/metrics", &[]), 200);
        assert_eq!(
            status(&self::guard("*"), "/", &[("host", "any.example")]),
            200
        );
    }

    /// The sender must not choose which of two hosts counts.
    #[test]
    fn two_hosts_are_refused_unless_they_are_the_same() {
        let guard = guard("");
        let target = "http://localhost/metrics";
        assert_eq!(status(&guard, target, &[("host", "localhost")]), 200);
        assert_eq!(status(&guard, target, &[("host", "evil.example")]), 421);
        assert_eq!(
            status(&guard, "http://evil.example/", &[("host", "localhost")]),
            421
        );
        let both = [("host", "localhost"), ("host", "evil.example")];
        assert_eq!(status(&guard, "/", &both), 421);
    }

    #[test]
    fn a_foreign_page_is_refused_whatever_it_says_else() {
        let guard = guard("");
        for (name, value, expected) in [
            ("origin", "http://localhost:2379", 200),
            ("origin", "http://LOCALHOST:2379", 200),
            ("origin", "http://localhost:8080", 403),
            ("origin", "http://evil.example", 403),
            ("origin", "http://localhost:2379.evil.example", 403),
            ("origin", "null", 403),
            ("origin", "", 403),
            ("sec-fetch-site", "same-origin", 200),
            ("sec-fetch-site", "none", 200),
            ("sec-fetch-site", "same-site", 403),
            ("sec-fetch-site", "cross-site", 403),
        ] {
            let headers = [("host", "localhost:2379"), (name, value)];
            assert_eq!(
                status(&guard, "/health", &headers),
                expected,
                "{name}: {value}"
            );
        }
        let origin = [("origin", "http://localhost:80"), ("host", "localhost")];
        assert_eq!(status(&guard, "/", &origin), 200);
        // Every name is allowed then, but a page of another host is still foreign.
        let origin = [("host", "a.example"), ("origin", "http://b.example")];
        assert_eq!(status(&self::guard("*"), "/", &origin), 403);
    }

    #[test]
    fn a_body_is_json_if_no_page_can_have_sent_it() {
        let of = |headers: &[(&'static str, &'static str)]| {
            let headers = headers.iter().map(|(name, value)| {
                let name = http::HeaderName::from_static(name);
                (name, http::HeaderValue::from_static(value))
            });
            let mut map = HeaderMap::new();
            headers.for_each(|(name, value)| {
                map.append(name, value);
            });
            Body::of(&map) == Body::Json
        };
        let form = ("content-type", "application/x-www-form-urlencoded");
        assert!(of(&[
            ("content-type", "application/json"),
            ("user-agent", "Mozilla/5.0")
        ]));
        assert!(of(&[("content-type", "Application/JSON ; charset=utf-8")]));
        // As in etcd's documentation: curl -d.
        assert!(of(&[form, ("user-agent", "curl/8.5.0")]));
        assert!(of(&[]));
        for hint in [
            ("origin", "http://localhost"),
            ("referer", "http://localhost/"),
            ("cookie", "a=b"),
            ("sec-fetch-mode", "no-cors"),
            ("sec-ch-ua", "x"),
            ("user-agent", "Mozilla/5.0 (X11)"),
        ] {
            assert!(!of(&[form, hint]), "{hint:?}");
            assert!(!of(&[hint]), "{hint:?}");
        }
        for kind in [
            "text/plain",
            "multipart/form-data; boundary=x",
            "application/jsonp",
            "text/json",
            "text/plain; application/json",
            "application/json, text/plain",
            "",
        ] {
            assert!(!of(&[("content-type", kind)]), "{kind}");
        }
        assert!(!of(&[
            ("content-type", "application/json"),
            ("content-type", "text/plain")
        ]));
    }
}

//! The entry point of the fuzz target `certificates`: what a peer shows, and the files. Compiled in tests and with
//! `--cfg fuzzing` only.

use crate::files::Content;
use crate::{Authority, PeerIdentity, Request};

/// Bytes as a certificate of a peer, and as a file of each kind.
pub fn certificates(data: &[u8]) {
    if let Ok(identity) = PeerIdentity::of_certificate(data) {
        for host in ["localhost", "m1.example.com", "10.0.0.1", "[::1]", ""] {
            let has = identity.has_host(host);
            assert!(!has || !host.is_empty(), "{identity:?} is for no host");
        }
        let _ = identity.to_string();
    }
    let content = Content::of_bytes(data);
    let _ = (content.chain(), content.key(), content.authorities());
    let _ = content.revocations(&content);
}

/// One input of each kind.
#[must_use]
#[cfg_attr(fuzzing, allow(dead_code))]
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let Ok(authority) = Authority::generate("a CA", 3650) else {
        return Vec::new();
    };
    let own = authority.own();
    let mut seeds = vec![own.der.clone(), own.certificate.clone().into_bytes()];
    let hosts = ["m1.example.com", "10.0.0.1", "::1", "*.example.com"];
    let requests = [Request::peer("m1", hosts), Request::client("alice")];
    for issued in requests.iter().flat_map(|request| authority.issue(request)) {
        seeds.extend([issued.der, issued.key.into_bytes()]);
    }
    // As a file of CAs and lists, which is checked against itself.
    let list = authority.revoke(&["1", "ffee"]);
    seeds.extend(list.map(|list| format!("{}{list}", own.certificate).into_bytes()));
    seeds
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    #[test]
    fn no_certificate_misleads_a_reader() {
        let corpus =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/fuzz/corpus/certificates.tar");
        let test = "no_certificate_misleads_a_reader";
        bowline_testing::replay(test, &corpus, super::seeds(), super::certificates);
    }
}

//! Signed tokens (JSON Web Tokens), as etcd's `--auth-token=jwt`: any member verifies one without any state.
//!
//! ```text
//! token   | head | . | claims | . | signature |        each in base64url without padding
//! head    {"alg":"RS256","typ":"JWT"}
//! claims  {"username":"ann","revision":7,"iat":1700000000,"exp":1700000300}
//! ```
//!
//! `username`, `revision` and `exp` are etcd's. The revision is the auth revision at which the password was checked: the
//! token is refused once its user was deleted, or got another password, after it, by the same rule as any other token.
//! `iat`, when the token was signed, bounds what a member with a wrong clock can give out.
//!
//! Invariants:
//!
//! - Nothing in a token chooses how it is verified: its algorithm must be the configured one, and nothing of its claims is
//!   looked at before its signature is verified.
//! - A claim of a wrong type is a refusal, never an absent claim.
//! - A token is valid for at most its time and [`SKEW`].

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bowline_replica::Session;
use bowline_tls::{SigningKeys, SigningMethod, TlsError};
use serde_json::{Map, Value, json};

/// By how much the clocks of members may differ.
const SKEW: Duration = Duration::from_secs(10);

/// The longest token, in bytes: one with the longest name and the largest RSA signature.
pub(crate) const TOKEN_BYTES_MAX: usize = 8 << 10;

/// How tokens are signed, and for how long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JwtOptions {
    /// The file of the public key.
    pub public_key: Option<PathBuf>,
    /// The file of the private key, or of the secret. Without it, tokens can be verified only.
    pub private_key: Option<PathBuf>,
    /// The method.
    pub method: SigningMethod,
    /// For how long a token is valid.
    pub ttl: Duration,
}

impl JwtOptions {
    /// Reads `pub-key=FILE,priv-key=FILE,sign-method=NAME,ttl=TIME`, what stands behind `jwt,` in etcd's setting.
    /// `time` reads a time.
    pub(crate) fn parse(
        text: &str,
        time: impl Fn(&str) -> Result<Duration, String>,
    ) -> Result<JwtOptions, String> {
        let (mut public_key, mut private_key, mut method, mut ttl) = (None, None, None, None);
        for option in text.split(',').filter(|option| !option.is_empty()) {
            let Some((name, value)) = option.split_once('=') else {
                return Err(format!("{option:?} has no value"));
            };
            let is_twice = match name {
                "pub-key" => public_key.replace(PathBuf::from(value)).is_some(),
                "priv-key" => private_key.replace(PathBuf::from(value)).is_some(),
                "sign-method" => {
                    let known = SigningMethod::of_name(value).ok_or_else(|| {
                        let all = SigningMethod::ALL.map(SigningMethod::name).join(", ");
                        format!("sign-method {value:?} is none of {all}")
                    })?;
                    method.replace(known).is_some()
                }
                "ttl" => ttl.replace(time(value)?).is_some(),
                _ => {
                    return Err(format!(
                        "{name:?} is none of pub-key, priv-key, sign-method and ttl"
                    ));
                }
            };
            if is_twice {
                return Err(format!("{name} is given twice"));
            }
        }
        let method = method.ok_or("sign-method is missing, like sign-method=RS256")?;
        if public_key.is_none() && private_key.is_none() {
            return Err("priv-key is missing, or pub-key to verify tokens only".to_owned());
        }
        Ok(JwtOptions {
            public_key,
            private_key,
            method,
            // As in etcd.
            ttl: ttl.unwrap_or(Duration::from_secs(300)),
        })
    }
}

/// Signs and verifies tokens.
#[derive(Debug)]
pub(crate) struct Jwt {
    pub(crate) keys: Arc<SigningKeys>,
    ttl: Duration,
}

impl Jwt {
    pub(crate) fn open(options: &JwtOptions) -> Result<Jwt, TlsError> {
        let (public, private) = (options.public_key.clone(), options.private_key.clone());
        Ok(Jwt {
            keys: Arc::new(SigningKeys::open(options.method, public, private)?),
            ttl: options.ttl,
        })
    }

    /// A token of a user whose password was right at an auth revision; `None` without a private key.
    pub(crate) fn sign(&self, user: &str, revision: u64, now_ms: u64) -> Option<String> {
        let now = now_ms / 1_000;
        let claims = json!({
            "username": user,
            "revision": revision,
            "iat": now,
            "exp": now.saturating_add(self.ttl.as_secs()),
        });
        let head = json!({ "alg": self.keys.method().name(), "typ": "JWT" });
        let encode = |part: &Value| URL_SAFE_NO_PAD.encode(part.to_string());
        let mut token = format!("{}.{}", encode(&head), encode(&claims));
        let signature = self.keys.sign(token.as_bytes())?;
        token.push('.');
        token.push_str(&URL_SAFE_NO_PAD.encode(signature));
        Some(token)
    }

    /// The session that a token stands for; `None` for one that is not valid now.
    pub(crate) fn verify(&self, token: &[u8], now_ms: u64) -> Option<Session> {
        let parts = Parts::of(token)?;
        if !parts.is_signed_by(self.keys.method()) {
            return None;
        }
        let signature = URL_SAFE_NO_PAD.decode(parts.signature).ok()?;
        if !self.keys.verify(parts.signed, &signature) {
            return None;
        }
        let claims = object(parts.claims)?;
        session(&claims, now_ms)
    }
}

/// A token in its parts, as they are encoded.
struct Parts<'a> {
    head: &'a [u8],
    claims: &'a [u8],
    signature: &'a [u8],
    /// What the signature is of: the head and the claims.
    signed: &'a [u8],
}

impl Parts<'_> {
    fn of(token: &[u8]) -> Option<Parts<'_>> {
        if token.len() > TOKEN_BYTES_MAX {
            return None;
        }
        let behind = token.iter().rposition(|byte| *byte == b'.')?;
        let (signed, signature) = (token.get(..behind)?, token.get(behind + 1..)?);
        let dot = signed.iter().position(|byte| *byte == b'.')?;
        let (head, claims) = (signed.get(..dot)?, signed.get(dot + 1..)?);
        // A part with another dot does not decode.
        Some(Parts {
            head,
            claims,
            signature,
            signed,
        })
    }

    /// Whether the head names this method, and asks for nothing that must be understood.
    fn is_signed_by(&self, method: SigningMethod) -> bool {
        let Some(head) = object(self.head) else {
            return false;
        };
        let is_jwt = match head.get("typ") {
            None => true,
            Some(kind) => kind
                .as_str()
                .is_some_and(|kind| kind.eq_ignore_ascii_case("jwt")),
        };
        let algorithm = head.get("alg").and_then(Value::as_str);
        algorithm == Some(method.name()) && is_jwt && !head.contains_key("crit")
    }
}

fn object(encoded: &[u8]) -> Option<Map<String, Value>> {
    let json = URL_SAFE_NO_PAD.decode(encoded).ok()?;
    match serde_json::from_slice(&json).ok()? {
        Value::Object(object) => Some(object),
        _ => None,
    }
}

fn session(claims: &Map<String, Value>, now_ms: u64) -> Option<Session> {
    let skew_ms = SKEW.as_millis() as u64;
    let user = claims
        .get("username")?
        .as_str()
        .filter(|name| !name.is_empty())?;
    let since = claims.get("revision")?.as_u64()?;
    let expires_ms = claims.get("exp")?.as_u64()?.saturating_mul(1_000);
    let expires_ms = expires_ms.saturating_add(skew_ms);
    for begin in ["iat", "nbf"] {
        let begins_ms = match claims.get(begin) {
            None => 0,
            Some(seconds) => seconds.as_u64()?.saturating_mul(1_000),
        };
        if begins_ms > now_ms.saturating_add(skew_ms) {
            return None;
        }
    }
    (now_ms < expires_ms).then(|| Session::until(user, since, expires_ms))
}

/// For fuzzing: any bytes as a token.
#[cfg(any(test, fuzzing))]
pub(crate) fn parse_any(token: &[u8]) {
    if let Some(parts) = Parts::of(token) {
        assert_eq!(parts.signed.len() + 1 + parts.signature.len(), token.len());
        assert_eq!(
            parts.head.len() + 1 + parts.claims.len(),
            parts.signed.len()
        );
        let _ = parts.is_signed_by(SigningMethod::Rs256);
        if let Some(claims) = object(parts.claims)
            && let Some(session) = session(&claims, 1_700_000_000_000)
        {
            assert!(!session.user().is_empty() && session.is_valid(1_700_000_000_000));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use super::*;

    const NOW_MS: u64 = 1_700_000_000_000;

    fn write(path: &Path, bytes: &[u8]) {
        std::fs::write(path, bytes).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
    }

    fn secret(directory: &Path) -> Jwt {
        let path = directory.join("secret");
        write(&path, &[7; 64]);
        open(SigningMethod::Hs256, None, Some(path)).unwrap()
    }

    fn open(
        method: SigningMethod,
        public_key: Option<PathBuf>,
        private_key: Option<PathBuf>,
    ) -> Result<Jwt, TlsError> {
        Jwt::open(&JwtOptions {
            public_key,
            private_key,
            method,
            ttl: Duration::from_secs(300),
        })
    }

    fn pair(directory: &Path, method: SigningMethod) -> (PathBuf, PathBuf) {
        let (private, public) = bowline_tls::new_pair(method).unwrap();
        let name = method.name();
        let paths = ["key", "pub"].map(|end| directory.join(format!("{name}.{end}")));
        write(&paths[0], private.as_bytes());
        write(&paths[1], public.as_bytes());
        let [private, public] = paths;
        (private, public)
    }

    /// A token with these parts, signed by the keys.
    fn token_of(jwt: &Jwt, head: &str, claims: &str) -> String {
        let encode = |text: &str| URL_SAFE_NO_PAD.encode(text);
        let signed = format!("{}.{}", encode(head), encode(claims));
        let signature = jwt.keys.sign(signed.as_bytes()).unwrap();
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    #[test]
    fn every_method_verifies_its_own_tokens_and_no_others() {
        let directory = tempfile::tempdir().unwrap();
        let mut all = vec![secret(directory.path())];
        for method in [
            SigningMethod::Es256,
            SigningMethod::Es384,
            SigningMethod::EdDsa,
        ] {
            let (private, public) = pair(directory.path(), method);
            let signer = open(method, Some(public.clone()), Some(private.clone())).unwrap();
            let verifier = open(method, Some(public), None).unwrap();
            let token = signer.sign("ann", 7, NOW_MS).unwrap();
            assert!(verifier.verify(token.as_bytes(), NOW_MS).is_some());
            assert_eq!(verifier.sign("ann", 7, NOW_MS), None);
            // The public key is computed.
            all.push(open(method, None, Some(private)).unwrap());
        }
        // Keys of RSA take seconds to make.
        let paths = ["key", "pub"].map(|end| directory.path().join(format!("rsa.{end}")));
        write(&paths[0], include_bytes!("../tests/keys/rsa.pem"));
        write(&paths[1], include_bytes!("../tests/keys/rsa.pub.pem"));
        for method in [SigningMethod::Rs256, SigningMethod::Ps512] {
            let [private, public] = paths.clone();
            all.push(open(method, Some(public.clone()), Some(private)).unwrap());
            let refused = open(SigningMethod::Es256, Some(public), None).unwrap_err();
            assert!(
                refused.to_string().contains("no public key for ES256"),
                "{refused}"
            );
        }
        for (one, signer) in all.iter().enumerate() {
            let token = signer.sign("ann", 7, NOW_MS).unwrap();
            for (other, verifier) in all.iter().enumerate() {
                let verified = verifier.verify(token.as_bytes(), NOW_MS);
                assert_eq!(verified.is_some(), one == other);
            }
            let session = signer.verify(token.as_bytes(), NOW_MS).unwrap();
            assert_eq!((session.user(), session.since()), ("ann", 7));
        }
        // The key of another issuer.
        let foreign = tempfile::tempdir().unwrap();
        let (private, _) = pair(foreign.path(), SigningMethod::Es256);
        let foreign = open(SigningMethod::Es256, None, Some(private)).unwrap();
        let token = foreign.sign("root", 7, NOW_MS).unwrap();
        assert!(all[1].verify(token.as_bytes(), NOW_MS).is_none());
    }

    #[test]
    fn a_token_does_not_choose_how_it_is_verified() {
        let directory = tempfile::tempdir().unwrap();
        let jwt = secret(directory.path());
        let claims = r#"{"username":"root","revision":1,"exp":1700000100}"#;
        assert!(
            jwt.verify(
                token_of(&jwt, r#"{"alg":"HS256"}"#, claims).as_bytes(),
                NOW_MS
            )
            .is_some()
        );
        for head in [
            r#"{"alg":"none"}"#,
            r#"{"alg":"None","typ":"JWT"}"#,
            r#"{"alg":"HS384"}"#,
            r#"{"alg":"hs256"}"#,
            r#"{"alg":["HS256"]}"#,
            r#"{"typ":"JWT"}"#,
            r#"{"alg":"HS256","crit":["exp"]}"#,
            r#"{"alg":"HS256","typ":"JWE"}"#,
            r#"["HS256"]"#,
            "HS256",
        ] {
            let token = token_of(&jwt, head, claims);
            assert!(jwt.verify(token.as_bytes(), NOW_MS).is_none(), "{head}");
        }
        // Without a signature at all.
        let encode = |text: &str| URL_SAFE_NO_PAD.encode(text);
        for head in [r#"{"alg":"none"}"#, r#"{"alg":"HS256"}"#] {
            let token = format!("{}.{}.", encode(head), encode(claims));
            assert!(jwt.verify(token.as_bytes(), NOW_MS).is_none());
        }
        // A public key is no secret: what it signs as HS256 is not taken by ES256, and no server takes it as a secret.
        let (private, public) = pair(directory.path(), SigningMethod::Es256);
        let es = open(SigningMethod::Es256, Some(public.clone()), Some(private)).unwrap();
        let token = jwt.sign("root", 1, NOW_MS).unwrap();
        assert!(es.verify(token.as_bytes(), NOW_MS).is_none());
        let refused = open(SigningMethod::Hs256, None, Some(public.clone())).unwrap_err();
        assert!(refused.to_string().contains("random bytes"), "{refused}");
        let refused = open(SigningMethod::Hs256, Some(public), None).unwrap_err();
        assert!(
            refused.to_string().contains("leave pub-key out"),
            "{refused}"
        );
    }

    #[test]
    fn times_are_bounded_and_a_claim_of_a_wrong_type_is_a_refusal() {
        let directory = tempfile::tempdir().unwrap();
        let jwt = secret(directory.path());
        let is_valid = |claims: &str| {
            let token = token_of(&jwt, r#"{"alg":"HS256"}"#, claims);
            jwt.verify(token.as_bytes(), NOW_MS).is_some()
        };
        let with = |more: &str| format!(r#"{{"username":"ann","revision":1{more}}}"#);
        for (more, expected) in [
            (r#","exp":1700000100"#, true),
            (r#","exp":1699999995"#, true),
            (r#","exp":1699999990"#, false),
            (r#","exp":1700000100,"iat":1700000009"#, true),
            (r#","exp":1700000100,"iat":1700000011"#, false),
            (r#","exp":1700000100,"nbf":1700000011"#, false),
            (r#","exp":1700000100,"nbf":"1700000011""#, false),
            (r#","exp":1700000100,"nbf":null"#, false),
            (r#","exp":"never""#, false),
            (r#","exp":-1"#, false),
            (r#","exp":1e300"#, false),
            ("", false),
        ] {
            assert_eq!(is_valid(&with(more)), expected, "{more}");
        }
        assert!(!is_valid(
            r#"{"username":"","revision":1,"exp":1700000100}"#
        ));
        assert!(!is_valid(r#"{"username":1,"revision":1,"exp":1700000100}"#));
        assert!(!is_valid(
            r#"{"username":"ann","revision":"1","exp":1700000100}"#
        ));
        assert!(!is_valid(r#"{"revision":1,"exp":1700000100}"#));
        // Its own tokens end after their time.
        let token = jwt.sign("ann", 1, NOW_MS).unwrap();
        let at = |seconds: u64| {
            jwt.verify(token.as_bytes(), NOW_MS + seconds * 1_000)
                .is_some()
        };
        assert_eq!(
            [at(0), at(299), at(309), at(310)],
            [true, true, true, false]
        );
        let session = jwt.verify(token.as_bytes(), NOW_MS).unwrap();
        assert!(!session.is_valid(NOW_MS + 310_000));
    }

    #[test]
    fn any_changed_or_cut_token_is_refused_and_any_bytes_are_parsed() {
        let directory = tempfile::tempdir().unwrap();
        let jwt = secret(directory.path());
        let token = jwt.sign("ann", 1, NOW_MS).unwrap().into_bytes();
        for at in 0..token.len() {
            assert!(jwt.verify(&token[..at], NOW_MS).is_none());
            let mut changed = token.clone();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            assert!(jwt.verify(&changed, NOW_MS).is_none(), "{at}");
        }
        assert!(jwt.verify(&[&token[..], b"."].concat(), NOW_MS).is_none());
        assert!(
            jwt.verify(&vec![b'a'; TOKEN_BYTES_MAX + 1], NOW_MS)
                .is_none()
        );
        let mut random = fastrand::Rng::with_seed(24);
        for _ in 0..2_000 {
            let mut bytes = token.clone();
            for _ in 0..random.usize(1..6) {
                let at = random.usize(..bytes.len());
                match random.u8(..3) {
                    0 => bytes[at] = random.u8(..),
                    1 => bytes.truncate(at.max(1)),
                    _ => bytes.insert(at, random.choice(*b".=-_{\"").unwrap()),
                }
            }
            parse_any(&bytes);
            if bytes != token {
                assert!(jwt.verify(&bytes, NOW_MS).is_none());
            }
        }
    }

    #[test]
    fn keys_are_read_again_and_bad_ones_change_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let (private, _) = pair(directory.path(), SigningMethod::Es256);
        let jwt = open(SigningMethod::Es256, None, Some(private.clone())).unwrap();
        let old = jwt.sign("ann", 1, NOW_MS).unwrap();
        let reload = || bowline_tls::Reload::reload(&*jwt.keys);
        write(&private, b"nothing");
        assert!(reload().is_err());
        assert!(jwt.verify(old.as_bytes(), NOW_MS).is_some());
        let (other, _) = bowline_tls::new_pair(SigningMethod::EdDsa).unwrap();
        write(&private, other.as_bytes());
        assert!(reload().unwrap_err().to_string().contains("ES256"));
        let (new, _) = bowline_tls::new_pair(SigningMethod::Es256).unwrap();
        write(&private, new.as_bytes());
        std::fs::set_permissions(&private, std::fs::Permissions::from_mode(0o644)).unwrap();
        let refused = reload().unwrap_err().to_string();
        assert!(refused.contains("chmod 600"), "{refused}");
        let generation = jwt.keys.generation();
        std::fs::set_permissions(&private, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert!(reload().is_ok());
        assert!(jwt.keys.generation() > generation);
        assert!(
            jwt.verify(old.as_bytes(), NOW_MS).is_none(),
            "of the old key"
        );
        let token = jwt.sign("ann", 1, NOW_MS).unwrap();
        assert!(jwt.verify(token.as_bytes(), NOW_MS).is_some());
    }

    #[test]
    fn pairs_that_do_not_fit_and_short_secrets_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let (private, _) = pair(directory.path(), SigningMethod::Es256);
        let other = tempfile::tempdir().unwrap();
        let (_, public) = pair(other.path(), SigningMethod::Es256);
        let refused = open(SigningMethod::Es256, Some(public), Some(private)).unwrap_err();
        assert!(refused.to_string().contains("one pair"), "{refused}");
        let short = directory.path().join("short");
        write(&short, b"a password");
        let refused = open(SigningMethod::Hs256, None, Some(short)).unwrap_err();
        assert!(refused.to_string().contains("needs 32"), "{refused}");
    }

    #[test]
    fn the_options_are_those_of_etcd() {
        let time = |text: &str| match text {
            "10m" => Ok(Duration::from_secs(600)),
            _ => Err("no time".to_owned()),
        };
        let parse = |text: &str| JwtOptions::parse(text, time);
        let parsed = parse("pub-key=a.pub,priv-key=a.key,sign-method=RS256,ttl=10m");
        let expected = JwtOptions {
            public_key: Some("a.pub".into()),
            private_key: Some("a.key".into()),
            method: SigningMethod::Rs256,
            ttl: Duration::from_secs(600),
        };
        assert_eq!(parsed, Ok(expected));
        for (text, part) in [
            ("priv-key=k", "sign-method is missing"),
            ("sign-method=RS256", "priv-key is missing"),
            ("priv-key=k,sign-method=none", "is none of"),
            ("priv-key=k,sign-method=RS256,ttl=0", "no time"),
            ("priv-key=k,priv-key=k,sign-method=RS256", "given twice"),
            ("priv-key", "has no value"),
            ("key=k", "none of pub-key"),
        ] {
            let refused = parse(text).unwrap_err();
            assert!(refused.contains(part), "{text}: {refused}");
        }
    }
}

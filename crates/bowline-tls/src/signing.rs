//! [`SigningKeys`]: the keys of signed tokens, in files that are read again when they change.
//!
//! One method is configured, and nothing that a token says chooses another: a key is used with the algorithm that it was
//! read for, and a file of another kind of key is refused when it is read. So a public key can never be taken for a secret.
//!
//! | method | private key | public key |
//! |---|---|---|
//! | `RS256`, `RS384`, `RS512`, `PS256`, `PS384`, `PS512` | PKCS#8 or PKCS#1, in PEM | SPKI or a certificate, in PEM |
//! | `ES256`, `ES384`, `EdDSA` | PKCS#8, in PEM | SPKI or a certificate, in PEM |
//! | `HS256`, `HS384`, `HS512` | the bytes of the file: the secret | none |
//!
//! The public key of a private one is computed if no file is named. If one is, both must be of one pair.
//!
//! Invariants:
//!
//! - A private key or secret that others can read is not used.
//! - Keys are used as one set, and a bad set changes nothing.

use std::path::PathBuf;

use ring::hmac;
use ring::rand::SystemRandom;
use ring::signature::{
    self, EcdsaKeyPair, EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair, RsaEncoding, RsaKeyPair,
    UnparsedPublicKey, VerificationAlgorithm,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, SubjectPublicKeyInfoDer};
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::public_key::PublicKey;
use x509_parser::x509::SubjectPublicKeyInfo;

use crate::error::TlsError;
use crate::files::Content;
use crate::reload::{Looked, Reload, Reloading};

/// How tokens are signed, by the name that they have in a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it: RFC 7518 and RFC 8037")]
pub enum SigningMethod {
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Ps384,
    Ps512,
    Es256,
    Es384,
    EdDsa,
    Hs256,
    Hs384,
    Hs512,
}

/// What a method does with its keys.
enum Kind {
    Rsa(&'static dyn RsaEncoding, &'static dyn VerificationAlgorithm),
    Ec(
        &'static EcdsaSigningAlgorithm,
        &'static dyn VerificationAlgorithm,
    ),
    Ed,
    Hmac(hmac::Algorithm),
}

impl SigningMethod {
    /// All of them.
    pub const ALL: [SigningMethod; 12] = [
        SigningMethod::Rs256,
        SigningMethod::Rs384,
        SigningMethod::Rs512,
        SigningMethod::Ps256,
        SigningMethod::Ps384,
        SigningMethod::Ps512,
        SigningMethod::Es256,
        SigningMethod::Es384,
        SigningMethod::EdDsa,
        SigningMethod::Hs256,
        SigningMethod::Hs384,
        SigningMethod::Hs512,
    ];

    /// Its name in a token.
    ///
    /// ```
    /// assert_eq!(bowline_tls::SigningMethod::Rs256.name(), "RS256");
    /// ```
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            SigningMethod::Rs256 => "RS256",
            SigningMethod::Rs384 => "RS384",
            SigningMethod::Rs512 => "RS512",
            SigningMethod::Ps256 => "PS256",
            SigningMethod::Ps384 => "PS384",
            SigningMethod::Ps512 => "PS512",
            SigningMethod::Es256 => "ES256",
            SigningMethod::Es384 => "ES384",
            SigningMethod::EdDsa => "EdDSA",
            SigningMethod::Hs256 => "HS256",
            SigningMethod::Hs384 => "HS384",
            SigningMethod::Hs512 => "HS512",
        }
    }

    /// The method of a name; `None` also for `none`.
    #[must_use]
    pub fn of_name(name: &str) -> Option<SigningMethod> {
        let mut all = SigningMethod::ALL.into_iter();
        all.find(|method| method.name() == name)
    }

    fn kind(self) -> Kind {
        use SigningMethod as M;
        use signature as s;
        match self {
            M::Rs256 => Kind::Rsa(&s::RSA_PKCS1_SHA256, &s::RSA_PKCS1_2048_8192_SHA256),
            M::Rs384 => Kind::Rsa(&s::RSA_PKCS1_SHA384, &s::RSA_PKCS1_2048_8192_SHA384),
            M::Rs512 => Kind::Rsa(&s::RSA_PKCS1_SHA512, &s::RSA_PKCS1_2048_8192_SHA512),
            M::Ps256 => Kind::Rsa(&s::RSA_PSS_SHA256, &s::RSA_PSS_2048_8192_SHA256),
            M::Ps384 => Kind::Rsa(&s::RSA_PSS_SHA384, &s::RSA_PSS_2048_8192_SHA384),
            M::Ps512 => Kind::Rsa(&s::RSA_PSS_SHA512, &s::RSA_PSS_2048_8192_SHA512),
            M::Es256 => Kind::Ec(
                &s::ECDSA_P256_SHA256_FIXED_SIGNING,
                &s::ECDSA_P256_SHA256_FIXED,
            ),
            M::Es384 => Kind::Ec(
                &s::ECDSA_P384_SHA384_FIXED_SIGNING,
                &s::ECDSA_P384_SHA384_FIXED,
            ),
            M::EdDsa => Kind::Ed,
            M::Hs256 => Kind::Hmac(hmac::HMAC_SHA256),
            M::Hs384 => Kind::Hmac(hmac::HMAC_SHA384),
            M::Hs512 => Kind::Hmac(hmac::HMAC_SHA512),
        }
    }

    fn is_hmac(self) -> bool {
        matches!(self.kind(), Kind::Hmac(_))
    }
}

enum Private {
    Rsa(Box<RsaKeyPair>, &'static dyn RsaEncoding),
    Ec(Box<EcdsaKeyPair>),
    Ed(Ed25519KeyPair),
}

/// A set of keys.
enum Keys {
    Pair {
        private: Option<Private>,
        public: UnparsedPublicKey<Vec<u8>>,
    },
    Secret(hmac::Key),
}

impl Keys {
    fn sign(&self, message: &[u8]) -> Option<Vec<u8>> {
        let random = SystemRandom::new();
        match self {
            Keys::Secret(key) => Some(hmac::sign(key, message).as_ref().to_vec()),
            Keys::Pair { private, .. } => match private.as_ref()? {
                Private::Rsa(key, encoding) => {
                    let mut out = vec![0; key.public().modulus_len()];
                    key.sign(*encoding, &random, message, &mut out).ok()?;
                    Some(out)
                }
                Private::Ec(key) => {
                    let signed = key.sign(&random, message).ok()?;
                    Some(signed.as_ref().to_vec())
                }
                Private::Ed(key) => Some(key.sign(message).as_ref().to_vec()),
            },
        }
    }

    fn verify(&self, message: &[u8], signature: &[u8]) -> bool {
        match self {
            // In constant time.
            Keys::Secret(key) => hmac::verify(key, message, signature).is_ok(),
            Keys::Pair { public, .. } => public.verify(message, signature).is_ok(),
        }
    }
}

/// The keys of signed tokens.
pub struct SigningKeys {
    method: SigningMethod,
    keys: Reloading<Keys>,
}

impl std::fmt::Debug for SigningKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SigningKeys")
            .field("method", &self.method)
            .finish_non_exhaustive()
    }
}

impl SigningKeys {
    /// Reads the keys. Without a private key, tokens can be verified only.
    ///
    /// # Errors
    /// `Settings` when the method needs another file; what is wrong with a file.
    pub fn open(
        method: SigningMethod,
        public: Option<PathBuf>,
        private: Option<PathBuf>,
    ) -> Result<SigningKeys, TlsError> {
        let name = method.name();
        let refuse = |text: String| Err(TlsError::Settings(text));
        match (method.is_hmac(), &public, &private) {
            (true, Some(_), _) => {
                return refuse(format!(
                    "{name} has one secret, in the file of priv-key: leave pub-key out, or choose another sign-method"
                ));
            }
            (true, None, None) => {
                return refuse(format!(
                    "{name} needs the file of its secret: give priv-key"
                ));
            }
            (false, None, None) => {
                return refuse(format!(
                    "{name} needs keys: give priv-key to sign tokens, or pub-key to verify them only"
                ));
            }
            _ => {}
        }
        let has_private = private.is_some();
        let files: Vec<PathBuf> = private.into_iter().chain(public).collect();
        let make = move |contents: &[Content]| match (has_private, contents) {
            (true, [private]) => make(method, None, Some(private)),
            (true, [private, public]) => make(method, Some(public), Some(private)),
            (false, [public]) => make(method, Some(public), None),
            _ => Err(TlsError::Settings(
                "the files of keys are other ones".to_owned(),
            )),
        };
        Ok(SigningKeys {
            method,
            keys: Reloading::new("keys of tokens", files, make)?,
        })
    }

    /// The method.
    #[must_use]
    pub fn method(&self) -> SigningMethod {
        self.method
    }

    /// Signs a message; `None` without a private key.
    #[must_use]
    pub fn sign(&self, message: &[u8]) -> Option<Vec<u8>> {
        self.keys.current().sign(message)
    }

    /// Whether a signature of a message was made with these keys.
    #[must_use]
    pub fn verify(&self, message: &[u8], signature: &[u8]) -> bool {
        self.keys.current().verify(message, signature)
    }

    /// Counts the sets of keys: what was verified with an earlier one has to be verified again.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.keys.taken()
    }
}

impl Reload for SigningKeys {
    fn look(&self) -> Result<Looked, TlsError> {
        self.keys.look(false)
    }

    fn reload(&self) -> Result<Looked, TlsError> {
        self.keys.look(true)
    }
}

/// Makes a set of keys of its files.
fn make(
    method: SigningMethod,
    public: Option<&Content>,
    private: Option<&Content>,
) -> Result<Keys, TlsError> {
    if let Kind::Hmac(algorithm) = method.kind() {
        return secret(algorithm, private);
    }
    let own = private.map(|file| private_key(method, file)).transpose()?;
    let derived = own.as_ref().map(|key| match key {
        Private::Rsa(key, _) => key.public_key().as_ref().to_vec(),
        Private::Ec(key) => key.public_key().as_ref().to_vec(),
        Private::Ed(key) => key.public_key().as_ref().to_vec(),
    });
    let given = public.map(|file| public_key(method, file)).transpose()?;
    if let (Some(derived), Some(given), Some(public), Some(private)) =
        (&derived, &given, public, private)
        && derived != given
    {
        let reason = format!("it is not of one pair with {}", private.path().display());
        return Err(public.malformed(&reason));
    }
    let Some(key) = given.or(derived) else {
        return Err(TlsError::Settings("there are no keys".to_owned()));
    };
    let algorithm: &'static dyn VerificationAlgorithm = match method.kind() {
        Kind::Rsa(_, verification) | Kind::Ec(_, verification) => verification,
        Kind::Ed | Kind::Hmac(_) => &signature::ED25519,
    };
    let keys = Keys::Pair {
        private: own,
        public: UnparsedPublicKey::new(algorithm, key),
    };
    // Of a size that the other members verify, too.
    if let Some(private) = private
        && !keys
            .sign(b"probe")
            .is_some_and(|signed| keys.verify(b"probe", &signed))
    {
        return Err(private.malformed(&"it cannot sign what its public key verifies"));
    }
    Ok(keys)
}

fn secret(algorithm: hmac::Algorithm, file: Option<&Content>) -> Result<Keys, TlsError> {
    let Some(file) = file else {
        return Err(TlsError::Settings("there is no secret".to_owned()));
    };
    let bytes = file.secret()?;
    if bytes.windows(11).any(|at| at == b"-----BEGIN ") {
        return Err(file.malformed(
            &"it is a key or a certificate in PEM, which others may know; the secret of HS256, HS384 and HS512 is random \
              bytes: head -c 64 /dev/urandom > FILE",
        ));
    }
    let least = algorithm.digest_algorithm().output_len();
    if bytes.len() < least {
        return Err(file.malformed(&format!(
            "a secret of {} bytes can be guessed, this method needs {least}: head -c 64 /dev/urandom > FILE",
            bytes.len()
        )));
    }
    Ok(Keys::Secret(hmac::Key::new(algorithm, bytes)))
}

fn private_key(method: SigningMethod, file: &Content) -> Result<Private, TlsError> {
    let name = method.name();
    let wrong = |error: ring::error::KeyRejected| {
        file.malformed(&format!("it is no private key for {name} ({error})"))
    };
    Ok(match (method.kind(), file.key()?) {
        (Kind::Rsa(encoding, _), PrivateKeyDer::Pkcs8(key)) => {
            let key = RsaKeyPair::from_pkcs8(key.secret_pkcs8_der());
            Private::Rsa(Box::new(key.map_err(wrong)?), encoding)
        }
        (Kind::Rsa(encoding, _), PrivateKeyDer::Pkcs1(key)) => {
            let key = RsaKeyPair::from_der(key.secret_pkcs1_der());
            Private::Rsa(Box::new(key.map_err(wrong)?), encoding)
        }
        (Kind::Ec(algorithm, _), PrivateKeyDer::Pkcs8(key)) => {
            let random = SystemRandom::new();
            let key = EcdsaKeyPair::from_pkcs8(algorithm, key.secret_pkcs8_der(), &random);
            Private::Ec(Box::new(key.map_err(wrong)?))
        }
        (Kind::Ed, PrivateKeyDer::Pkcs8(key)) => {
            let key = Ed25519KeyPair::from_pkcs8_maybe_unchecked(key.secret_pkcs8_der());
            Private::Ed(key.map_err(wrong)?)
        }
        (Kind::Ec(..), PrivateKeyDer::Sec1(_)) => {
            return Err(file.malformed(
                &"it is an EC key in the form of SEC 1: write it with `openssl pkcs8 -topk8 -nocrypt`",
            ));
        }
        _ => return Err(file.malformed(&format!("it is no private key for {name}"))),
    })
}

/// The public key as its algorithm takes it, from an SPKI or a certificate.
fn public_key(method: SigningMethod, file: &Content) -> Result<Vec<u8>, TlsError> {
    if let Ok(key) = SubjectPublicKeyInfoDer::from_pem_slice(file.bytes()) {
        let (_, info) = SubjectPublicKeyInfo::from_der(&key).map_err(|e| file.malformed(&e))?;
        return key_in(method, file, &info);
    }
    match CertificateDer::from_pem_slice(file.bytes()) {
        Ok(certificate) => {
            let parsed = X509Certificate::from_der(&certificate);
            let (_, certificate) = parsed.map_err(|error| file.malformed(&error))?;
            key_in(method, file, certificate.public_key())
        }
        Err(_) => Err(file.empty_of_public_key()),
    }
}

fn key_in(
    method: SigningMethod,
    file: &Content,
    info: &SubjectPublicKeyInfo<'_>,
) -> Result<Vec<u8>, TlsError> {
    /// Smaller ones are refused when they verify, which nobody would understand.
    const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=8192;
    const ED25519: &str = "1.3.101.112";
    let algorithm = info.algorithm.algorithm.to_id_string();
    let point_bytes = match method {
        SigningMethod::Es256 => 65,
        _ => 97,
    };
    let bytes = info.subject_public_key.data.to_vec();
    let fits = match (method.kind(), info.parsed()) {
        (Kind::Rsa(..), Ok(PublicKey::RSA(key))) => RSA_BITS.contains(&key.key_size()),
        (Kind::Ec(..), Ok(PublicKey::EC(_))) => bytes.len() == point_bytes,
        (Kind::Ed, _) => algorithm == ED25519 && bytes.len() == 32,
        _ => false,
    };
    match fits {
        true => Ok(bytes),
        false => Err(file.malformed(&format!("it is no public key for {}", method.name()))),
    }
}

/// For the tests of other crates: a private key of a method, in PEM, and its public key.
///
/// # Errors
/// `Making` for RSA, whose keys take long to make, and for secrets.
#[doc(hidden)]
pub fn new_pair(method: SigningMethod) -> Result<(String, String), TlsError> {
    let algorithm = match method {
        SigningMethod::Es256 => &rcgen::PKCS_ECDSA_P256_SHA256,
        SigningMethod::Es384 => &rcgen::PKCS_ECDSA_P384_SHA384,
        SigningMethod::EdDsa => &rcgen::PKCS_ED25519,
        _ => return Err(TlsError::Making("a key of another kind".to_owned())),
    };
    let pair = rcgen::KeyPair::generate_for(algorithm);
    let pair = pair.map_err(|error| TlsError::Making(error.to_string()))?;
    Ok((pair.serialize_pem(), pair.public_key_pem()))
}

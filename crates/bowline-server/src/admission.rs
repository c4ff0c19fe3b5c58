//! The admission of calls: who the principal of a call is, and whether its rates allow the call ([`crate::rates`]).

use std::net::{IpAddr, Ipv4Addr};
use std::time::Instant;

use bowline_replica::Caller;

use crate::context::Context;
use crate::credentials::Credentials;
use crate::memory::Account;
use crate::rates::{Principal, Rates, client_of};
use crate::status::Fault;

impl Context {
    /// Admits a call of whoever shows these credentials on a connection. The principal is to be charged for the reply;
    /// `None` without limits.
    ///
    /// # Errors
    /// `RateExceeded`, which names the principal, the limit, and when to try again.
    #[inline]
    pub(crate) fn admit(
        &self,
        credentials: &Credentials,
        account: &Account,
    ) -> Result<Option<Principal>, Fault> {
        match &self.rates {
            None => Ok(None),
            Some(rates) => self.admit_by(rates, credentials, account).map(Some),
        }
    }

    fn admit_by(
        &self,
        rates: &Rates,
        credentials: &Credentials,
        account: &Account,
    ) -> Result<Principal, Fault> {
        let principal = match self.known_caller(credentials) {
            Some(Caller::User(session)) => Principal::User(session),
            _ => {
                let address = account.address().map(|address| address.ip());
                let address = address.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
                Principal::Address(client_of(address))
            }
        };
        rates.admit(&principal, Instant::now())?;
        Ok(principal)
    }
}

//! The JSON gateway, from Python's standard library.

use bowline_testing::skip;
use tokio::process::Command;

use crate::server::{is_installed, on_both, repository};

#[tokio::test(flavor = "multi_thread")]
async fn python_is_served_by_the_gateway() {
    if !is_installed("python3", "--version") {
        skip("python3 is not installed");
        return;
    }
    on_both(17, |url| {
        let mut client = Command::new("python3");
        client.arg(repository("clients/python/gateway.py")).arg(url);
        client
    })
    .await;
}

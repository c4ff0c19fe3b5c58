//! Metrics of certificates and handshakes, of each port with TLS: `clients`, which is also the port of metrics, and `peers`.

use std::fmt::{self, Write};
use std::time::UNIX_EPOCH;

use bowline_tls::{Counts, ServerTls};

use super::rows::head;

/// A metric: its name, kind and help, and its rows of a port, each with what follows the label of the port.
struct Metric {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    rows: fn(&Counts) -> Vec<(&'static str, u64)>,
}

const METRICS: [Metric; 5] = [
    Metric {
        name: "handshakes_total",
        kind: "counter",
        help: "TLS handshakes that have ended.",
        rows: |counts| {
            vec![
                (",result=\"ok\"", counts.handshakes_done),
                (",result=\"failed\"", counts.handshakes_failed),
            ]
        },
    },
    Metric {
        name: "handshakes_under_way",
        kind: "gauge",
        help: "TLS handshakes that have begun and not ended.",
        rows: |counts| vec![("", counts.handshakes as u64)],
    },
    Metric {
        name: "handshakes_evicted_total",
        kind: "counter",
        help: "TLS handshakes that were given up for others, as too many were under way.",
        rows: |counts| vec![("", counts.handshakes_evicted)],
    },
    Metric {
        name: "certificate_sets_total",
        kind: "counter",
        help: "Certificates, keys, CAs and revocation lists that were read again.",
        rows: |counts| {
            vec![
                (",result=\"taken\"", counts.sets_taken),
                (",result=\"refused\"", counts.sets_refused),
            ]
        },
    },
    Metric {
        name: "connections_revoked_total",
        kind: "counter",
        help: "Connections that were ended, as their certificates were revoked.",
        rows: |counts| vec![("", counts.connections_ended)],
    },
];

/// Writes the metrics of all ports; nothing where none has TLS.
pub(super) fn write(out: &mut String, ports: &[(&str, ServerTls)]) -> fmt::Result {
    if ports.is_empty() {
        return Ok(());
    }
    for Metric {
        name,
        kind,
        help,
        rows,
    } in METRICS
    {
        let name = format!("bowline_tls_{name}");
        head(out, &name, kind, help)?;
        for (port, tls) in ports {
            for (labels, value) in rows(&tls.counts()) {
                writeln!(out, "{name}{{port=\"{port}\"{labels}}} {value}")?;
            }
        }
    }
    let name = "bowline_tls_certificate_expiration_timestamp_seconds";
    let help = "When the port's certificate expires, in seconds since 1970.";
    head(out, name, "gauge", help)?;
    for (port, tls) in ports {
        let expires = tls.expires().duration_since(UNIX_EPOCH).unwrap_or_default();
        let seconds = expires.as_secs();
        writeln!(out, "{name}{{port=\"{port}\"}} {seconds}")?;
    }
    Ok(())
}

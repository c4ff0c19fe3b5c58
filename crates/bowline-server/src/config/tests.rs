//! Precedence of layers, parsing of values, and sources in errors.

use std::io::Write;

use super::*;

fn layers(file: &str, environment: &[(&str, &str)], flags: &[(&str, &str)]) -> Layers {
    try_layers(file, environment, flags).unwrap()
}

fn try_layers(
    file: &str,
    environment: &[(&str, &str)],
    flags: &[(&str, &str)],
) -> Result<Layers, ConfigError> {
    let mut layers = Layers::default();
    let mut written = tempfile::NamedTempFile::new().unwrap();
    written.write_all(file.as_bytes()).unwrap();
    layers.add_file(written.path())?;
    layers.add_environment(|wanted| {
        let found = environment.iter().find(|(name, _)| *name == wanted);
        found.map(|(_, value)| (*value).to_owned())
    });
    for (key, value) in flags {
        layers.add_flag(key, (*value).to_owned())?;
    }
    Ok(layers)
}

fn error(file: &str, environment: &[(&str, &str)], flags: &[(&str, &str)]) -> String {
    let taken = try_layers(file, environment, flags);
    let error = taken.and_then(|layers| Config::from_layers(&layers).map(drop));
    error.unwrap_err().to_string()
}

#[test]
fn without_anything_the_defaults_are_those_of_etcd() {
    let config = Config::from_layers(&Layers::default()).unwrap();
    assert_eq!(config.node.name, "default");
    assert_eq!(config.node.data_dir, PathBuf::from("default.bowline"));
    assert_eq!(
        config.listen_client_urls[0].to_string(),
        "http://localhost:2379"
    );
    assert_eq!(config.node.advertise_client_urls, ["http://localhost:2379"]);
    let own = ("default".to_owned(), "http://localhost:2380".to_owned());
    assert_eq!(config.node.initial_cluster, [own]);
    assert!(!config.node.is_existing);
    assert_eq!(config.node.election_timeout, Duration::from_secs(1));
    assert_eq!(
        (config.max_request_bytes, config.max_txn_ops),
        (1_572_864, 128)
    );
    assert_eq!(config.watch_progress_interval, Duration::from_secs(600));
    assert_eq!(config.quota_bytes, 2 << 30);
    assert_eq!(config.node.snapshot_entries, 10_000);
    assert_eq!(config.node.kept_entries, 5_000);
}

#[test]
fn flags_beat_the_environment_which_beats_the_file_which_beats_defaults() {
    let file = "name = 'f'\nmax-txn-ops = 1\nelection-timeout = \"3s\"\n";
    let environment = [("BOWLINE_NAME", "e"), ("BOWLINE_MAX_TXN_OPS", "2")];
    let layers = layers(file, &environment, &[("name", "g")]);
    let config = Config::from_layers(&layers).unwrap();
    assert_eq!(config.node.name, "g");
    assert_eq!(config.max_txn_ops, 2);
    assert_eq!(config.node.election_timeout, Duration::from_secs(3));
    assert_eq!(config.max_connections, 16384);
    let printed = layers.to_toml();
    assert!(printed.contains("name = \"g\" # --name\n"), "{printed}");
    assert!(
        printed.contains("max-txn-ops = 2 # BOWLINE_MAX_TXN_OPS\n"),
        "{printed}"
    );
    assert!(
        printed.contains("max-connections = 16384 # default\n"),
        "{printed}"
    );
    assert!(printed.contains(":3\n"), "{printed}");
}

#[test]
fn what_is_printed_can_be_used_as_a_file() {
    let file =
        "name = 'a \"b\"'\ndrain-timeout = 7\nhost-whitelist = 'é\u{202E}\u{E0041}\u{85}\t'\n";
    let first = layers(file, &[], &[]);
    let is_shown = |c: char| c == '\n' || bowline::text::is_plain(c);
    assert!(first.to_toml().chars().all(is_shown));
    let again = layers(&first.to_toml(), &[], &[]);
    for setting in SETTINGS {
        assert_eq!(first.text(setting.key), again.text(setting.key));
    }
}

#[test]
fn errors_name_file_and_line_or_flag_or_variable() {
    let said = error("\n\nmax-txn-ops = \"many\"\n", &[], &[]);
    assert!(
        said.ends_with(":3: max-txn-ops: \"many\" is not a whole number from 0 on"),
        "{said}"
    );
    let said = error("name = 'a'\nbogus = 1\n", &[], &[]);
    assert!(
        said.ends_with(":2: there is no setting \"bogus\""),
        "{said}"
    );
    let said = error("name = 'a'\nname = ", &[], &[]);
    assert!(said.contains(":2: "), "{said}");
    let said = error("\nmax-txn-ops = 1.5\n", &[], &[]);
    assert!(
        said.contains(":2: max-txn-ops must be text, a number"),
        "{said}"
    );
    let said = error("", &[("BOWLINE_MAX_TXN_OPS", "0")], &[]);
    assert_eq!(said, "BOWLINE_MAX_TXN_OPS: must be above 0");
    let said = error("", &[], &[("listen-client-urls", "localhost")]);
    assert!(
        said.starts_with("--listen-client-urls: \"localhost\" is not a URL"),
        "{said}"
    );
    let said = error("", &[], &[("listen-client-urls", "https://a:1")]);
    assert_eq!(
        said,
        "--listen-client-urls: https://a:1: https needs --cert-file and --key-file, or --auto-tls"
    );
    let said = error("", &[], &[("election-timeout", "400")]);
    assert_eq!(
        said,
        "--election-timeout: must be at least five times the --heartbeat-interval"
    );
    let said = error("", &[], &[("initial-cluster", "a=http://h:1")]);
    assert!(said.contains("it names no member \"default\""), "{said}");
    let said = error("", &[], &[("log-level", "loud")]);
    assert!(
        said.starts_with("--log-level: \"loud\" is not one of"),
        "{said}"
    );
    let mut missing = Layers::default();
    let said = missing.add_file(std::path::Path::new("/no/such/file"));
    let said = said.unwrap_err().to_string();
    assert!(
        said.starts_with("cannot read the configuration /no/such/file: "),
        "{said}"
    );
}

#[test]
fn lists_of_the_file_are_lists() {
    let file = "listen-client-urls = ['http://a:1', 'http://[::1]:2']\n";
    let config = Config::from_layers(&layers(file, &[], &[])).unwrap();
    assert_eq!(config.listen_client_urls.len(), 2);
    assert_eq!(config.listen_client_urls[1].host, "::1");
    assert_eq!(config.listen_client_urls[1].to_string(), "http://[::1]:2");
}

#[test]
fn urls_are_a_scheme_a_host_and_a_port() {
    for url in [
        "http://a:1",
        "https://127.0.0.1:65535",
        "http://[::1]:2379",
        "http://a:1/",
    ] {
        assert!(parse_url(url).is_ok(), "{url}");
    }
    for url in [
        "",
        "a:1",
        "ftp://a:1",
        "http://a",
        "http://a:x",
        "http://a:65536",
        "http://:1",
        "http://::1:1",
        "http://a:1/b",
        "http://u@a:1",
        "http://a:1?x",
    ] {
        assert!(parse_url(url).is_err(), "{url}");
    }
}

#[test]
fn times_are_milliseconds_or_have_units() {
    let ms = |text| duration(text).unwrap().as_millis();
    assert_eq!(
        (ms("100"), ms("250ms"), ms("10s"), ms("1h30m")),
        (100, 250, 10_000, 5_400_000)
    );
    for text in ["", "s", "1x", "-1s", "1.5s", "1s5", "99999999999999999999h"] {
        assert!(duration(text).is_err(), "{text}");
    }
}

/// With 0, which switches pings off in etcd, every connection was pinged without end, or ended when it was idle; and
/// the threads of the watches spun.
#[test]
fn zero_means_what_it_means_in_etcd() {
    let of = |key: &str, value: &str| {
        let config = Config::from_layers(&layers("", &[], &[(key, value)])).unwrap();
        let interval = config.connections().keep_alive_interval;
        (interval, config.watch_progress_interval)
    };
    let (two_hours, ten_minutes) = (Duration::from_secs(7_200), Duration::from_secs(600));
    for (key, value, expected) in [
        ("name", "default", (Some(two_hours), ten_minutes)),
        ("grpc-keepalive-interval", "0", (None, ten_minutes)),
        ("grpc-keepalive-timeout", "0s", (None, ten_minutes)),
        (
            "watch-progress-notify-interval",
            "0",
            (Some(two_hours), ten_minutes),
        ),
        (
            "watch-progress-notify-interval",
            "1ms",
            (Some(two_hours), Duration::from_millis(100)),
        ),
        (
            "watch-progress-notify-interval",
            "101ms",
            (Some(two_hours), Duration::from_millis(101)),
        ),
    ] {
        assert_eq!(of(key, value), expected, "{key} {value}");
    }
}

#[test]
fn every_setting_has_a_default_that_can_be_used_and_a_help() {
    for setting in SETTINGS {
        assert!(
            !setting.help.is_empty() && !setting.help.ends_with('.'),
            "{}",
            setting.key
        );
    }
}

#[test]
fn the_names_of_metrics_are_a_list_or_one_of_the_values_of_etcd() {
    let of = |names: &str| {
        let mut layers = Layers::default();
        layers.add_flag("metrics", names.to_owned()).unwrap();
        let names = Config::from_layers(&layers).map(|config| config.metric_names);
        names.map_err(|error| error.to_string())
    };
    let names = |of_etcd, of_bowline| {
        Ok(MetricNames {
            of_etcd,
            of_bowline,
        })
    };
    for (text, wanted) in [
        ("etcd", names(true, false)),
        ("bowline", names(false, true)),
        ("bowline, etcd", names(true, true)),
        ("basic", names(true, true)),
        ("extensive", names(true, true)),
        (
            "",
            Err("--metrics: \"\" is not one of etcd, bowline".to_owned()),
        ),
        (
            "etcd,basic",
            Err("--metrics: \"basic\" is not one of etcd, bowline".to_owned()),
        ),
    ] {
        assert_eq!(of(text), wanted, "{text}");
    }
    assert_eq!(
        Config::from_layers(&Layers::default())
            .unwrap()
            .metric_names,
        MetricNames::ALL
    );
}

/// Each of these would leave something in the clear, or open, that somebody meant to close.
#[test]
fn settings_of_tls_that_cannot_mean_what_they_say_are_refused() {
    let pair = [("cert-file", "c"), ("key-file", "k")];
    let secure = ("listen-client-urls", "https://a:1");
    let cases: &[(&[(&str, &str)], &str)] = &[
        (&[pair[0], secure], "--cert-file: it needs --key-file"),
        (&[pair[1], secure], "--key-file: it needs --cert-file"),
        (
            &pair,
            "--cert-file: no URL of --listen-client-urls is https",
        ),
        (
            &[("auto-tls", "true")],
            "--auto-tls: no URL of --listen-client-urls is https",
        ),
        (
            &[pair[0], pair[1], secure, ("auto-tls", "true")],
            "--auto-tls: it is for a server without",
        ),
        (
            &[pair[0], pair[1], secure, ("client-cert-auth", "true")],
            "--client-cert-auth: it needs the CA",
        ),
        (
            &[pair[0], pair[1], secure, ("client-crl-file", "l")],
            "--client-crl-file: it needs the CA",
        ),
        (
            &[
                pair[0],
                pair[1],
                secure,
                ("client-cert-allowed-hostname", "h"),
            ],
            "--client-cert-allowed-hostname: it needs the CA",
        ),
        (
            &[("trusted-ca-file", "ca")],
            "--trusted-ca-file: it needs --cert-file",
        ),
        (
            &[("listen-metrics-urls", "https://a:2")],
            "--listen-metrics-urls: https://a:2: https needs",
        ),
        (
            &[("listen-peer-urls", "https://a:2")],
            "--listen-peer-urls: https://a:2: https needs --peer-cert-file",
        ),
        (
            &[
                ("peer-auto-tls", "true"),
                ("listen-peer-urls", "https://a:2,http://a:3"),
            ],
            "--listen-peer-urls: https://a:2 and http://a:3",
        ),
        (
            &[
                ("peer-auto-tls", "true"),
                ("listen-peer-urls", "https://a:2"),
                ("peer-cert-allowed-cn", "n"),
            ],
            "--peer-cert-allowed-cn: it needs the CA",
        ),
        (
            &[pair[0], pair[1], secure, ("tls-min-version", "TLS1.1")],
            "--tls-min-version: TLS1.1 is not safe",
        ),
        (
            &[
                pair[0],
                pair[1],
                secure,
                ("tls-min-version", "TLS1.3"),
                ("tls-max-version", "TLS1.2"),
            ],
            "--tls-min-version: TLS1.3 is above",
        ),
    ];
    for (flags, expected) in cases {
        let said = error("", &[], flags);
        assert!(said.starts_with(expected), "{flags:?}: {said}");
    }
    let flags = [
        pair[0],
        pair[1],
        secure,
        ("client-cert-auth", "true"),
        ("trusted-ca-file", "ca"),
    ];
    let config = Config::from_layers(&layers("", &[], &flags)).unwrap();
    assert!(config.client_tls.is_some() && config.peer_tls.is_none());
}

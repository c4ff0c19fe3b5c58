//! What the command line takes, and that its help is true.

use std::time::Duration;

use bowline::{LeaseId, Revision};
use clap::{Command as Tree, CommandFactory};

use super::*;
use crate::import::{self, BlockRef};

fn parse(line: &str) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(line.split_whitespace())
}

fn command(line: &str) -> Command {
    parse(line)
        .unwrap_or_else(|error| panic!("{line}: {error}"))
        .command
}

/// Calls `visit` with every command below `tree` and its path.
fn walk(tree: &Tree, path: &str, visit: &mut dyn FnMut(&Tree, &str)) {
    for command in tree
        .get_subcommands()
        .filter(|command| command.get_name() != "help")
    {
        let path = format!("{path} {}", command.get_name());
        visit(command, &path);
        walk(command, &path, visit);
    }
}

#[test]
fn the_tree_is_sound() {
    Cli::command().debug_assert();
}

#[test]
fn every_command_has_examples_of_itself_and_all_of_them_parse() {
    let mut examples = 0;
    let mut check = |tree: &Tree, path: &str| {
        let help = tree
            .get_after_help()
            .map(ToString::to_string)
            .unwrap_or_default();
        let lines = help
            .strip_prefix("Examples:\n")
            .unwrap_or_else(|| panic!("{path}: {help}"));
        let mut own = false;
        for line in lines.lines().take_while(|line| !line.is_empty()) {
            // Whatever the shell does with the output is not for us to parse.
            let called = &line[line.find("bowline").unwrap_or_else(|| panic!("{line}"))..];
            let words = shlex::split(called).unwrap_or_else(|| panic!("{line}"));
            let called: Vec<&str> = words
                .iter()
                .map(String::as_str)
                .take_while(|word| !matches!(*word, "|" | "<" | ">"))
                .collect();
            let parsed = Cli::try_parse_from(&called);
            assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
            own |= format!("{} ", called.join(" ")).contains(&format!("{path} "))
                || path.split(' ').skip(1).all(|word| called.contains(&word));
            examples += 1;
        }
        assert!(own, "{path} has no example of itself");
    };
    check(&Cli::command(), "bowline");
    walk(&Cli::command(), "bowline", &mut check);
    assert!(examples > 60, "{examples}");
}

#[test]
fn every_command_and_option_explains_itself() {
    walk(&Cli::command(), "bowline", &mut |tree, path| {
        let about = tree
            .get_about()
            .map(ToString::to_string)
            .unwrap_or_default();
        // The documentation of a type must not end up as the help of a command.
        assert!(
            !about.is_empty() && !about.contains('`') && !about.ends_with('.'),
            "{path}: {about}"
        );
        for option in tree.get_arguments() {
            assert!(option.get_help().is_some(), "{path} {}", option.get_id());
        }
    });
    let help = Cli::command().render_long_help().to_string();
    assert!(
        help.contains("A transactional key-value and graph database"),
        "{help}"
    );
    assert!(help.contains("Exit codes:\n  0  done"), "{help}");
}

/// A server, a restore and a cluster to try things with have another directory than the other commands.
#[test]
fn help_names_the_directory_that_is_used() {
    for (line, default) in [
        ("bowline serve", "[default: NAME.bowline]"),
        ("bowline snapshot restore", "[default: NAME.bowline]"),
        ("bowline cluster up", "[default: a temporary one]"),
        ("bowline get", "[default: ./bowline-data]"),
    ] {
        let words = line.split(' ').chain(["--help"]);
        let help = Cli::try_parse_from(words).unwrap_err().to_string();
        let at = help
            .find("--data-dir <DIR>")
            .unwrap_or_else(|| panic!("{help}"));
        let own = help[at..].split("\n  -").next().unwrap();
        let own = own.split("\n      --").next().unwrap();
        assert!(own.contains(default), "{line}: {own}");
        assert_eq!(own.matches("[default: ").count(), 1, "{line}: {own}");
        assert_eq!(
            help.matches("--data-dir <DIR>").count(),
            1,
            "{line}: {help}"
        );
    }
    for line in [
        "bowline --data-dir d serve",
        "bowline serve --data-dir d",
        "bowline serve --name n --data-dir=d",
    ] {
        let Command::Serve(serve) = command(line) else {
            panic!()
        };
        let given = ("data-dir", "d".to_owned());
        assert!(serve.flags.contains(&given), "{line}: {:?}", serve.flags);
    }
    let Command::Serve(serve) = command("bowline serve") else {
        panic!()
    };
    assert!(serve.flags.is_empty(), "{:?}", serve.flags);
}

#[test]
fn global_options_stand_before_or_after_the_command() {
    for line in [
        "bowline -o json --data-dir d get k",
        "bowline get k -o json --data-dir d",
        "bowline --output=json get --data-dir d k",
    ] {
        let cli = parse(line).unwrap();
        assert_eq!(cli.global.output, Output::Json);
        assert_eq!(cli.global.data_dir, PathBuf::from("d"));
    }
    let cli = parse("bowline graph stats -q").unwrap();
    assert!(cli.global.quiet);
    assert_eq!(cli.global.output, Output::Table);
}

#[test]
fn values_may_be_negative_numbers_or_absent() {
    let Command::Put(put) = command("bowline put k -5 --lease 7") else {
        panic!()
    };
    assert_eq!(
        (put.value.as_deref(), put.lease),
        (Some("-5"), LeaseId::new(7))
    );
    let Command::Put(put) = command("bowline put k") else {
        panic!()
    };
    assert_eq!((put.value, put.write.durability), (None, Durability::Sync));
    let Command::Put(put) = command("bowline put k -") else {
        panic!()
    };
    assert_eq!(put.value.as_deref(), Some("-"));
    let Command::Put(put) = command("bowline put -- -k --value") else {
        panic!()
    };
    assert_eq!(
        (put.key.as_str(), put.value.as_deref()),
        ("-k", Some("--value"))
    );
    let Command::Cas(cas) = command("bowline cas k 0 -1.5") else {
        panic!()
    };
    assert_eq!(
        (cas.expected_revision, cas.value.as_str()),
        (Revision::new(0), "-1.5")
    );
}

#[test]
fn del_takes_exactly_one_of_key_prefix_and_range() {
    let Command::Del(del) = command("bowline del --range a b") else {
        panic!()
    };
    assert_eq!(del.range, Some(vec!["a".to_owned(), "b".to_owned()]));
    let Command::Del(del) = command("bowline del --prefix a") else {
        panic!()
    };
    assert_eq!((del.key.as_deref(), del.prefix), (Some("a"), true));
    for line in [
        "bowline del",
        "bowline del --prefix",
        "bowline del --range a",
        "bowline del k --range a b",
        "bowline del --prefix --range a b",
    ] {
        assert!(parse(line).is_err(), "{line}");
    }
}

#[test]
fn what_contradicts_itself_is_refused() {
    for line in [
        "bowline",
        "bowline frobnicate",
        "bowline range a b --prefix",
        "bowline range --prefix",
        "bowline watch --prefix",
        "bowline watch k --timeout 5",
        "bowline cas k -1 v",
        "bowline lease grant soon",
        "bowline block put a",
        "bowline block put a --kind k --attr novalue",
        "bowline block put a --kind k --attr =v",
        "bowline graph neighbors a --direction up",
        "bowline import f --batch 0",
        "bowline import f --format yaml",
        "bowline put k v --durability batched:0ms",
        "bowline put k v --durability never",
        "bowline put k v -o yaml",
    ] {
        let error = parse(line).expect_err(line);
        assert_eq!(error.exit_code(), i32::from(Exit::Usage.code()), "{line}");
    }
}

#[test]
fn texts_become_values() {
    let Command::Watch(watch) = command("bowline watch k --timeout 500ms") else {
        panic!()
    };
    assert_eq!(watch.timeout, Some(Duration::from_millis(500)));
    let line = "bowline block put a --kind k --attr a=b=c --attr d=";
    let Command::Block(Block::Put {
        block,
        attributes,
        content,
        ..
    }) = command(line)
    else {
        panic!()
    };
    assert_eq!(block, BlockRef::Name("a".to_owned()));
    assert_eq!(content, "");
    let pairs = [("a", "b=c"), ("d", "")].map(|(k, v)| (k.to_owned(), v.into()));
    assert_eq!(attributes.all(), pairs.into());
    let line = r#"bowline block put a --kind k --attr-json n=[1,2.5] --attr-json d={"$date":"2026-01-02"}"#;
    let Command::Block(Block::Put { attributes, .. }) = command(line) else {
        panic!()
    };
    let shown: Vec<_> = attributes
        .all()
        .into_iter()
        .map(|(k, v)| format!("{k}: {v}"))
        .collect();
    assert_eq!(shown, ["d: 2026-01-02", "n: [1, 2.5]"]);
    let id = "0123abcd-4567-89ef-fedc-ba9876543210";
    let line = format!("bowline graph reach {id} --max-bytes 1KiB --kind a --kind b");
    let Command::Graph(Graph::Reach {
        block,
        bounds,
        edges,
        ..
    }) = command(&line)
    else {
        panic!()
    };
    assert!(matches!(block, BlockRef::Id(_)));
    assert_eq!(bounds.max_bytes, Some(1024));
    assert_eq!(edges.scope.kinds, ["a", "b"]);
    assert_eq!(edges.direction, Direction::Out);
}

#[test]
fn import_options_reach_the_parsers() {
    let line = "bowline import f --block-kind a --edge-kind b --third-column c --skip-lines 2 \
                --max-line 1KiB --format jsonl";
    let Command::Import(import) = command(line) else {
        panic!()
    };
    let expected = import::Options {
        block_kind: Some("a".to_owned()),
        edge_kind: Some("b".to_owned()),
        third_column: "c".to_owned(),
        skip_lines: 2,
        line_max_bytes: Some(1024),
    };
    assert_eq!(import.options(), expected);
    assert_eq!(import.format.fixed(), Some(import::Format::JsonLines));
    let Command::Import(plain) = command("bowline import f") else {
        panic!()
    };
    assert_eq!(plain.options(), import::Options::default());
    assert_eq!(
        (plain.format.fixed(), plain.batch, plain.batch_bytes),
        (None, 1_000, 4 << 20)
    );
}

#[test]
fn durability_reads_and_writes() {
    for text in ["sync", "batched:10ms", "batched:1s"] {
        assert_eq!(text.parse::<Durability>().unwrap().to_string(), text);
    }
    assert_eq!(
        "batched".parse::<Durability>().unwrap().to_string(),
        "batched:10ms"
    );
}

#[test]
fn hexadecimal_is_decoded_only_if_asked_for() {
    let plain = Encoding { hex: false };
    let hex = Encoding { hex: true };
    assert_eq!(plain.decode("00ff"), Ok(b"00ff".to_vec()));
    assert_eq!(hex.decode("00fF"), Ok(vec![0, 255]));
    assert_eq!(hex.decode(""), Ok(vec![]));
    for text in ["0", "0g", "0x00", "é0"] {
        assert!(hex.decode(text).is_err(), "{text}");
    }
}

/// What is printed for the developer ends in logs and in reports of bugs.
#[test]
fn passwords_are_not_in_debug_output() {
    for line in [
        "bowline get k --endpoints a:1 --user ann:sesame",
        "bowline get k --endpoints a:1 --user ann --password sesame",
        "bowline user add ann:sesame",
    ] {
        let cli = parse(line).unwrap();
        let shown = format!("{cli:?} {:?}", cli.global.cluster.login());
        assert!(!shown.contains("sesame"), "{shown}");
    }
}

#[test]
fn a_user_may_have_its_password_behind_a_colon_or_apart() {
    for (given, name, password) in [
        ("--user ann", "ann", None),
        ("--user ann:pw:x", "ann", Some("pw:x")),
        ("--user ann:pw --password x", "ann:pw", Some("x")),
    ] {
        let cli = parse(&format!("bowline get k --endpoints a:1 {given}")).unwrap();
        let (found, secret) = cli.global.cluster.given_user().unwrap();
        let secret = secret.as_ref().map(Hidden::reveal);
        assert_eq!((found, secret), (name, password), "{given}");
    }
}

/// The user to log in as and the user of a command once had one name in the parser, which then panicked.
#[test]
fn the_user_of_a_command_is_not_the_one_who_logs_in() {
    let line = "bowline user grant-role ann worker --user root:pw";
    let cli = parse(line).unwrap();
    let (name, _) = cli.global.cluster.given_user().unwrap();
    assert_eq!(name, "root");
    let Command::Remote(cluster::ClusterCommand::User(User::GrantRole { user, role })) =
        cli.command
    else {
        panic!("{line}")
    };
    assert_eq!((&*user, &*role), ("ann", "worker"));
}

//! `bench`: runs a load and prints its figures.

use bowline_load::{Access, Baseline, Comparison, Figures, Generator, Report};

use crate::args::Output;
use crate::args::bench::Bench;
use crate::context::Context;
use crate::exit::Failure;
use crate::output::{Field, Printer};
use crate::progress::Progress;

pub(crate) fn run(context: &mut Context<'_, '_>, args: &Bench) -> Result<(), Failure> {
    match args {
        Bench::Put(load) => requests(context, load.json, |generator| generator.puts(load)),
        Bench::Txn { load, operations } => requests(context, load.json, |generator| {
            generator.transactions(load, *operations)
        }),
        Bench::Range {
            load,
            consistency,
            fill,
        } => requests(context, load.json, |generator| {
            generator.reads(load, *consistency, *fill)
        }),
        Bench::Graph(load) => requests(context, load.json, |generator| generator.graph(load)),
        Bench::Watch(load) => {
            let watched = with_generator(context, load.json, |generator| generator.watches(load))?;
            print(context, load.json, watched.figures())?;
            Ok(watched.expect_some_success()?)
        }
        Bench::Node(load) => Ok(bowline_load::measure_node(load, &mut |report| {
            print(context, load.json, bowline_load::node_figures(report))
        })?),
        Bench::Compare(args) => {
            let show = bars(context.is_quiet() || args.json);
            // Before minutes of measurement, and not after them.
            let kept = args.baseline.as_deref().map(Baseline::load).transpose()?;
            let comparison = bowline_load::compare(args, &show)?;
            print_comparison(context, args.json, &comparison)?;
            comparison.expect_some_success()?;
            let now = Baseline::of(&comparison);
            if let Some(file) = &args.save {
                now.save(file)?;
            }
            match kept {
                Some(kept) => Ok(kept.expect_not_worse(&now, args.only.as_deref())?),
                None => Ok(()),
            }
        }
    }
}

fn requests(
    context: &mut Context<'_, '_>,
    json: bool,
    measure: impl FnOnce(&Generator<'_>) -> bowline_load::Result<Report>,
) -> Result<(), Failure> {
    let report = with_generator(context, json, measure)?;
    print(context, json, report.figures())?;
    Ok(report.expect_some_success()?)
}

fn with_generator<T>(
    context: &Context<'_, '_>,
    json: bool,
    measure: impl FnOnce(&Generator<'_>) -> bowline_load::Result<T>,
) -> Result<T, Failure> {
    let credentials = context.credentials()?;
    let login = credentials.login;
    let access = Access {
        tls: credentials.tls,
        user: login.map(|login| (login.name, login.password.reveal().to_owned())),
    };
    let measured = measure(&Generator {
        endpoints: context.endpoints(),
        access,
        show: &bars(context.is_quiet() || json),
    });
    Ok(measured?)
}

impl bowline_load::Progress for Progress {
    fn add(&self, count: u64) {
        Progress::add(self, count);
    }

    fn remark(&self, text: &str) {
        Progress::remark(self, text);
    }
}

fn bars(quiet: bool) -> impl Fn(&str, Option<u64>) -> Box<dyn bowline_load::Progress> {
    move |title, total| Box::new(Progress::operations(title, total, quiet))
}

fn print(context: &mut Context<'_, '_>, json: bool, figures: Figures) -> std::io::Result<()> {
    let fields: Vec<_> = figures
        .into_iter()
        .map(|(name, figure)| (name, Field::from(figure)))
        .collect();
    let output = context.output(json);
    Printer::new(context.stdout(), output, false).record(&fields)
}

fn print_comparison(
    context: &mut Context<'_, '_>,
    json: bool,
    comparison: &Comparison,
) -> std::io::Result<()> {
    if context.output(json) == Output::Json {
        return writeln!(context.stdout(), "{}", comparison.to_json());
    }
    print(context, json, comparison.circumstances())?;
    let mut printer = context.printer(false);
    let mut rows = printer.rows(comparison.columns());
    for line in comparison.lines() {
        rows.push(line.into_iter().map(Field::from).collect())?;
    }
    rows.finish().map(drop)
}

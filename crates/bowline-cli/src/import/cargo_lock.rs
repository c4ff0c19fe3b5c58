//! The dependency graph of a `Cargo.lock`, versions 1 to 4.
//!
//! Each package becomes a block of kind `package`, named `name@version`, with the attributes
//! `name`, `version`, `source` and `checksum`, and the block's name as `label`; each dependency
//! becomes an edge of kind `depends_on`.
//!
//! ```text
//!   [[package]]                         [metadata]                      only in version 1,
//!   name = "serde"                      "checksum serde 1.0.2 (…)" =    which keeps checksums
//!   version = "1.0.2"                       "a1b2…"                     apart
//!   source = "registry+https://…"
//!   checksum = "a1b2…"
//!   dependencies = [
//!    "libc",                            the only package of that name
//!    "syn 2.0.1",                       the only one of that name and version, or the local one
//!    "syn 2.0.1 (registry+https://…)",  exactly this one
//!   ]
//! ```
//!
//! Cargo leaves out of a dependency what it does not need to tell packages apart, so each is
//! resolved against all packages of the file. Git sources may differ in the `#commit` at their
//! end, which some versions write only in the package. Where two packages have the same name and
//! version, those with a source are named `name@version (source)`, whatever their order.
//!
//! All blocks come before all edges. A file that is not TOML, or that has another shape, is
//! refused as a whole: half a lock file after a merge conflict is not a graph. Single packages
//! and dependencies are refused by themselves.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io::{self, BufRead, Read};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::item::{
    Attributes, Block, BlockRef, Edge, Event, Item, LABEL_ATTRIBUTE, NAME_ATTRIBUTE, Options,
    Position, Refusal,
};
use super::lines::starts_character;

/// The largest file read: 64 MiB. The largest lock files known have a few MiB.
pub const SIZE_MAX_BYTES: u64 = 64 << 20;

/// The longest name, version or source of a package, in bytes. Every dependency on a package
/// repeats them, so a file with a few long ones would import for hours. The longest names of
/// crates.io have 64 bytes.
pub(crate) const TEXT_MAX_BYTES: usize = 512;

/// The kind of blocks unless another is asked for.
pub const BLOCK_KIND: &str = "package";

/// The kind of edges unless another is asked for.
pub(crate) const EDGE_KIND: &str = "depends_on";

/// The newest version of the lock file that is understood.
const VERSION_MAX: i64 = 4;

/// Gives what a lock file says. It is read and resolved as a whole; items are made one at a time,
/// because the name of a package is repeated in each of its edges.
pub(crate) struct CargoLock {
    blocks: Vec<Block>,
    steps: std::vec::IntoIter<Step>,
    edge_kind: String,
}

/// An event that shares what it names with others.
enum Step {
    Refused(Refusal),
    Block {
        at: Position,
        block: usize,
    },
    Edge {
        at: Position,
        source: usize,
        target: usize,
    },
}

impl CargoLock {
    /// Reads `input` to its end. An `Err` comes from the reader only.
    pub fn read(input: impl BufRead, options: &Options) -> io::Result<CargoLock> {
        let mut bytes = Vec::new();
        input.take(SIZE_MAX_BYTES + 1).read_to_end(&mut bytes)?;
        let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(&bytes);
        let mut reader = Reader {
            positions: Positions::new(bytes),
            steps: Vec::new(),
        };
        let mut blocks = Vec::new();
        if bytes.len() as u64 > SIZE_MAX_BYTES {
            reader.refuse(
                0,
                format!("the file is larger than {} MiB", SIZE_MAX_BYTES >> 20),
            );
        } else {
            match str::from_utf8(bytes) {
                Ok(text) => blocks = reader.read(text, options),
                Err(error) => reader.refuse(error.valid_up_to(), "not UTF-8"),
            }
        }
        let edge_kind = options.edge_kind.as_deref().unwrap_or(EDGE_KIND).to_owned();
        Ok(CargoLock {
            blocks,
            steps: reader.steps.into_iter(),
            edge_kind,
        })
    }
}

impl Iterator for CargoLock {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        Some(match self.steps.next()? {
            Step::Refused(refusal) => Event::Refused(refusal),
            Step::Block { at, block } => Event::Item {
                at,
                item: Item::Block(self.blocks[block].clone()),
            },
            Step::Edge { at, source, target } => {
                let item = Item::Edge(Edge {
                    source: self.blocks[source].block.clone(),
                    kind: self.edge_kind.clone(),
                    target: self.blocks[target].block.clone(),
                    attributes: Attributes::new(),
                });
                Event::Item { at, item }
            }
        })
    }
}

/// Finds the line and column of a byte, in a time that does not grow with the line: a lock file
/// may stand on a single line, with as many positions on it as it has packages.
struct Positions<'t> {
    text: &'t [u8],
    /// Where each line starts.
    line_starts: Vec<usize>,
    /// How many characters start before each multiple of [`STRIDE_BYTES`].
    characters: Vec<usize>,
}

/// How far apart characters are counted.
const STRIDE_BYTES: usize = 1024;

impl<'t> Positions<'t> {
    fn new(text: &'t [u8]) -> Positions<'t> {
        let ends = text.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
        let line_starts = std::iter::once(0)
            .chain(ends.map(|(at, _)| at + 1))
            .collect();
        let mut characters = vec![0];
        for stride in text.chunks(STRIDE_BYTES) {
            characters.push(characters[characters.len() - 1] + starts(stride));
        }
        Positions {
            text,
            line_starts,
            characters,
        }
    }

    /// How many characters start before the byte at `offset`.
    fn characters_before(&self, offset: usize) -> usize {
        let stride = offset / STRIDE_BYTES;
        self.characters[stride] + starts(&self.text[stride * STRIDE_BYTES..offset])
    }

    /// The position of the byte at `offset`.
    fn at(&self, offset: usize) -> Position {
        let offset = offset.min(self.text.len());
        let line = self.line_starts.partition_point(|start| *start <= offset);
        let start = self.line_starts[line - 1];
        let column = self.characters_before(offset) - self.characters_before(start) + 1;
        Position {
            line: line as u64,
            column: column as u64,
        }
    }
}

/// How many characters start in `text`.
fn starts(text: &[u8]) -> usize {
    text.iter().filter(|byte| starts_character(**byte)).count()
}

/// A value with where it stands.
type Value<'a> = Spanned<DeValue<'a>>;

/// A package as the file gives it.
struct Package<'a> {
    at: usize,
    name: &'a str,
    version: &'a str,
    source: Option<&'a str>,
    checksum: Option<&'a str>,
    replace: Option<&'a str>,
    /// Each dependency with where it stands.
    dependencies: Vec<(usize, &'a str)>,
}

/// Reads the text of one lock file.
struct Reader<'t> {
    positions: Positions<'t>,
    steps: Vec<Step>,
}

impl Reader<'_> {
    fn refuse(&mut self, offset: usize, message: impl Into<String>) {
        let at = self.positions.at(offset);
        self.steps.push(Step::Refused(Refusal {
            at,
            message: message.into(),
        }));
    }

    /// Fills `steps` and gives the blocks that they refer to.
    fn read(&mut self, text: &str, options: &Options) -> Vec<Block> {
        let file = match DeTable::parse(text) {
            Ok(file) => file,
            Err(error) => {
                let offset = error.span().map_or(0, |span| span.start);
                self.refuse(offset, format!("not TOML: {}", error.message()));
                return Vec::new();
            }
        };
        let file = file.get_ref();
        let packages = match self.packages(file) {
            Ok(packages) => packages,
            Err((at, message)) => {
                self.refuse(at, message);
                return Vec::new();
            }
        };
        let index = Index::new(&packages);
        let checksums = checksums(file);
        let kind = options.block_kind.as_deref().unwrap_or(BLOCK_KIND);
        let mut blocks = Vec::with_capacity(packages.len());
        for package in &packages {
            let at = self.positions.at(package.at);
            self.steps.push(Step::Block {
                at,
                block: blocks.len(),
            });
            blocks.push(block(package, index.name(package), kind, &checksums));
        }
        for (source, package) in packages.iter().enumerate() {
            for (offset, dependency) in &package.dependencies {
                match index.resolve(dependency) {
                    Ok(target) => {
                        let at = self.positions.at(*offset);
                        self.steps.push(Step::Edge { at, source, target });
                    }
                    Err(message) => self.refuse(*offset, message),
                }
            }
        }
        blocks
    }

    /// Every well-formed package. An `Err` refuses the whole file.
    fn packages<'a>(&mut self, file: &'a DeTable<'a>) -> Result<Vec<Package<'a>>, (usize, String)> {
        if let Some(version) = file.get("version") {
            let number = version
                .get_ref()
                .as_integer()
                .and_then(|integer| i64::from_str_radix(integer.as_str(), integer.radix()).ok());
            if !number.is_some_and(|number| (1..=VERSION_MAX).contains(&number)) {
                let message = format!(
                    "the lock file's version is not one of 1 to {VERSION_MAX}: if Cargo wrote it, use a \
                     newer bowline"
                );
                return Err((version.span().start, message));
            }
        }
        let mut packages = Vec::new();
        // Cargo before 1.16 kept the package at the root apart.
        if let Some(root) = file.get("root") {
            packages.extend(self.package(root));
        }
        if let Some(list) = file.get("package") {
            let Some(array) = list.get_ref().as_array() else {
                let message = "`package` is not a list: this looks like a Cargo.toml; import the \
                               Cargo.lock beside it";
                return Err((list.span().start, message.to_owned()));
            };
            for value in array {
                packages.extend(self.package(value));
            }
        } else if packages.is_empty() && file.get("version").is_none() {
            return Err((0, "no packages: this is not a Cargo.lock".to_owned()));
        }

        let mut seen = HashMap::new();
        let mut unique = Vec::with_capacity(packages.len());
        for package in packages {
            match seen.entry((package.name, package.version, package.source)) {
                Entry::Vacant(slot) => {
                    slot.insert(package.at);
                    unique.push(package);
                }
                Entry::Occupied(first) => {
                    let message = format!(
                        "package {} {} stands here again, after line {}",
                        package.name,
                        package.version,
                        self.positions.at(*first.get()).line
                    );
                    self.refuse(package.at, message);
                }
            }
        }
        Ok(unique)
    }

    /// One package; refuses it and gives `None` if it is malformed.
    fn package<'a>(&mut self, value: &'a Value<'a>) -> Option<Package<'a>> {
        let at = value.span().start;
        let Some(table) = value.get_ref().as_table() else {
            self.refuse(
                at,
                format!("a package is a table, not {}", a(value.get_ref())),
            );
            return None;
        };
        let mut problems: Vec<(usize, String)> = Vec::new();
        let mut text = |field: &str| -> Option<&'a str> {
            let value = table.get(field)?;
            match value.get_ref().as_str() {
                Some("") => {
                    problems.push((value.span().start, format!("`{field}` is empty")));
                    None
                }
                Some(text) if text.len() > TEXT_MAX_BYTES && field != "checksum" => {
                    let message = format!("`{field}` is longer than {TEXT_MAX_BYTES} bytes");
                    problems.push((value.span().start, message));
                    None
                }
                Some(text) => Some(text),
                None => {
                    let message = format!("`{field}` is a string, not {}", a(value.get_ref()));
                    problems.push((value.span().start, message));
                    None
                }
            }
        };
        let [name, version] = ["name", "version"].map(&mut text);
        let [source, checksum, replace] = ["source", "checksum", "replace"].map(&mut text);
        if problems.is_empty() {
            for (field, value) in [("name", name), ("version", version)] {
                if value.is_none() {
                    problems.push((at, format!("the package has no `{field}`")));
                }
            }
        }
        let (Some(name), Some(version), true) = (name, version, problems.is_empty()) else {
            for (at, message) in problems {
                self.refuse(at, message);
            }
            return None;
        };
        let dependencies = table
            .get("dependencies")
            .map_or_else(Vec::new, |list| self.strings(list));
        Some(Package {
            at,
            name,
            version,
            source,
            checksum,
            replace,
            dependencies,
        })
    }

    /// The strings of a list, with where they stand; refuses what is none.
    fn strings<'a>(&mut self, list: &'a Value<'a>) -> Vec<(usize, &'a str)> {
        let Some(array) = list.get_ref().as_array() else {
            let message = format!("`dependencies` is a list, not {}", a(list.get_ref()));
            self.refuse(list.span().start, message);
            return Vec::new();
        };
        let mut strings = Vec::with_capacity(array.len());
        for value in array {
            let start = value.span().start;
            match value.get_ref().as_str() {
                Some(text) => strings.push((start, text)),
                None => {
                    self.refuse(
                        start,
                        format!("a dependency is a string, not {}", a(value.get_ref())),
                    );
                }
            }
        }
        strings
    }
}

/// The checksums that version 1 keeps under `[metadata]`, by `name version (source)`.
fn checksums<'a>(file: &'a DeTable<'a>) -> HashMap<&'a str, &'a str> {
    let table = file
        .get("metadata")
        .and_then(|value| value.get_ref().as_table());
    let entries = table.into_iter().flatten().filter_map(|(key, value)| {
        let package = key.get_ref().strip_prefix("checksum ")?;
        // Packages that have none say `<none>`.
        let checksum = value
            .get_ref()
            .as_str()
            .filter(|text| !text.starts_with('<'))?;
        Some((package, checksum))
    });
    entries.collect()
}

/// A value's type for an error: `an integer`.
fn a(value: &DeValue<'_>) -> String {
    let name = value.type_str();
    let article = if name.starts_with(['a', 'i']) {
        "an"
    } else {
        "a"
    };
    format!("{article} {name}")
}

/// The block of a package.
fn block(
    package: &Package<'_>,
    block_name: String,
    kind: &str,
    checksums: &HashMap<&str, &str>,
) -> Block {
    let mut attributes = Attributes::new();
    let mut put = |key: &str, value: &str| {
        attributes.insert(key.to_owned(), value.into());
    };
    put(NAME_ATTRIBUTE, package.name);
    put("version", package.version);
    if let Some(source) = package.source {
        put("source", source);
        let Package { name, version, .. } = package;
        let apart = format!("{name} {version} ({source})");
        if let Some(checksum) = package
            .checksum
            .or_else(|| checksums.get(apart.as_str()).copied())
        {
            put("checksum", checksum);
        }
    }
    if let Some(replace) = package.replace {
        put("replace", replace);
    }
    put(LABEL_ATTRIBUTE, &block_name);
    Block {
        block: BlockRef::Name(block_name),
        kinds: kind.into(),
        content: Vec::new(),
        attributes,
        if_absent: false,
    }
}

/// The packages of one name and version, which differ in their sources.
struct Sources {
    count: usize,
    /// The place of the first.
    first: usize,
}

/// All packages by name, version and source. No question is answered by going through packages:
/// a file may have a hundred thousand sources of one version, and ask for each.
struct Index<'a> {
    by_name: HashMap<&'a str, HashMap<&'a str, Sources>>,
    by_source: HashMap<(&'a str, &'a str, Option<&'a str>), usize>,
    /// The same, by the source without its commit; `None` where that is several packages.
    by_repository: HashMap<(&'a str, &'a str, &'a str), Option<usize>>,
}

impl<'a> Index<'a> {
    fn new(packages: &[Package<'a>]) -> Index<'a> {
        let mut index = Index {
            by_name: HashMap::new(),
            by_source: HashMap::new(),
            by_repository: HashMap::new(),
        };
        for (place, package) in packages.iter().enumerate() {
            let Package {
                name,
                version,
                source,
                ..
            } = *package;
            let versions = index.by_name.entry(name).or_default();
            let sources = versions.entry(version).or_insert(Sources {
                count: 0,
                first: place,
            });
            sources.count += 1;
            index.by_source.insert((name, version, source), place);
            if let Some(source) = source {
                index
                    .by_repository
                    .entry((name, version, without_commit(source)))
                    .and_modify(|found| *found = None)
                    .or_insert(Some(place));
            }
        }
        index
    }

    /// The name of a package's block, which no other package has.
    fn name(&self, package: &Package<'_>) -> String {
        let Package {
            name,
            version,
            source,
            ..
        } = package;
        let same = self
            .by_name
            .get(name)
            .and_then(|versions| versions.get(version));
        match source {
            Some(source) if same.is_some_and(|same| same.count > 1) => {
                format!("{name}@{version} ({source})")
            }
            _ => format!("{name}@{version}"),
        }
    }

    /// The place of the package that a dependency means.
    fn resolve(&self, dependency: &str) -> Result<usize, String> {
        let mut parts = dependency.splitn(3, ' ');
        let name = parts.next().unwrap_or_default();
        let version = parts.next();
        let source = match parts.next() {
            None => None,
            Some(text) => Some(
                text.strip_prefix('(').and_then(|text| text.strip_suffix(')')).ok_or_else(|| {
                    format!("{dependency:?} is not `name`, `name version` or `name version (source)`")
                })?,
            ),
        };
        let absent = || format!("dependency {dependency:?} is not a package of this file");
        let versions = self.by_name.get(name).ok_or_else(absent)?;
        let (version, sources) = match version {
            Some(version) => (version, versions.get(version).ok_or_else(absent)?),
            None if versions.len() == 1 => {
                let (version, sources) = versions.iter().next().ok_or_else(absent)?;
                (*version, sources)
            }
            None => {
                return Err(format!(
                    "dependency {dependency:?} is ambiguous: the file has {} versions of it",
                    versions.len()
                ));
            }
        };
        let exact = self.by_source.get(&(name, version, source)).copied();
        let found = exact.or_else(|| match source {
            Some(source) => {
                let repository = (name, version, without_commit(source));
                self.by_repository.get(&repository).copied().flatten()
            }
            // A local package has no source, so leaving it out means the local one if there is
            // one, and else the only one.
            None => (sources.count == 1).then_some(sources.first),
        });
        found.ok_or_else(|| {
            if source.is_some() {
                absent()
            } else {
                format!(
                    "dependency {dependency:?} is ambiguous: the file has it from {} sources",
                    sources.count
                )
            }
        })
    }
}

/// A source without the commit that a git source is locked to.
fn without_commit(source: &str) -> &str {
    source.split_once('#').map_or(source, |(source, _)| source)
}

#[cfg(test)]
#[path = "cargo_lock_tests.rs"]
mod tests;

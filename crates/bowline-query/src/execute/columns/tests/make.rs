//! [`Make`]: graphs and queries at random, most of which make groups.

use std::collections::BTreeSet;

use fastrand::Rng;

/// Makes a query, and knows which of its variables can be named.
pub(super) struct Make<'r> {
    random: &'r mut Rng,
    nodes: Vec<String>,
    relationships: Vec<String>,
    values: Vec<String>,
    made: usize,
}

/// A `CREATE` for 2 to 8 nodes, or 12. At most one relationship of a kind from one node to another, unless `is_parallel`.
pub(super) fn graph(random: &mut Rng, is_parallel: bool) -> String {
    let count = match random.u8(..8) {
        0 => random.usize(8..=12),
        _ => random.usize(2..8),
    };
    let mut parts = Vec::new();
    for at in 0..count {
        let label = pick(random, &["", ":A", ":B", ":A:B", ":A"]);
        let p = [
            "1", "2", "2.0", "'a'", "'bc'", "true", "null", "null", "-0.5",
        ];
        let i = ["1", "2", "3", "-2", "0.25", "1.5", "null"];
        let q = ["'a'", "'A'", "'abc'", "'b'", "''", "null"];
        let (p, i, q) = (pick(random, &p), pick(random, &i), pick(random, &q));
        parts.push(format!("(n{at}{label} {{p: {p}, i: {i}, q: {q}}})"));
    }
    let mut are_joined = BTreeSet::new();
    for at in 0..random.usize(count..=4 * count) {
        let (from, to) = (random.usize(..count), random.usize(..count));
        let kind = pick(random, &["T", "T", "T", "U"]);
        if are_joined.insert((from, kind, to)) || is_parallel {
            parts.push(format!("(n{from})-[:{kind} {{w: {}}}]->(n{to})", at % 3));
        }
    }
    format!("CREATE {}", parts.join(", "))
}

fn pick<'a>(random: &mut Rng, of: &[&'a str]) -> &'a str {
    of[random.usize(..of.len())]
}

/// A query. Most make groups.
pub(super) fn query(random: &mut Rng) -> String {
    let mut make = Make {
        random,
        nodes: Vec::new(),
        relationships: Vec::new(),
        values: Vec::new(),
        made: 0,
    };
    let mut text = make.before();
    // With each step, rows grow manifold.
    let mut steps = 4;
    text += &make.clause(&mut steps);
    if make.chance(35) {
        text += &make.with();
    }
    if make.chance(45) {
        text += &make.clause(&mut steps);
        if make.chance(20) {
            text += &make.with();
        }
    }
    text + &make.answer()
}

impl Make<'_> {
    fn chance(&mut self, percent: u8) -> bool {
        self.random.u8(..100) < percent
    }

    fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        pick(self.random, of)
    }

    fn fresh(&mut self, prefix: &str) -> String {
        self.made += 1;
        format!("{prefix}{}", self.made)
    }

    fn one_of(&mut self, names: &[String]) -> Option<String> {
        self.random.choice(names).cloned()
    }

    fn any_node(&mut self) -> Option<String> {
        let names = self.nodes.clone();
        self.one_of(&names)
    }

    /// What stands before the first MATCH.
    fn before(&mut self) -> String {
        match self.random.u8(..12) {
            0 => {
                self.values.push("u".into());
                "UNWIND [1, 2, 2, null] AS u ".into()
            }
            1 => {
                self.nodes.extend(["o".into(), "t".into()]);
                "OPTIONAL MATCH (o:B)-[:U]->(t) ".into()
            }
            2 => {
                self.nodes.push("s".into());
                "MATCH (s) WITH s LIMIT 3 ".into()
            }
            3 => {
                self.nodes.push("s".into());
                "MATCH (x:A) WITH collect(x) AS xs UNWIND xs + [null] AS s ".into()
            }
            _ => String::new(),
        }
    }

    fn clause(&mut self, steps: &mut usize) -> String {
        let optional = if self.chance(3) { "OPTIONAL " } else { "" };
        let mut patterns = Vec::new();
        for at in 0..self.random.usize(1..=2) {
            // Hardly ever each with each.
            let is_joined = (at > 0 || !self.nodes.is_empty()) && self.chance(90);
            patterns.push(self.pattern(steps, is_joined));
            if *steps == 0 {
                break;
            }
        }
        let mut text = format!("{optional}MATCH {} ", patterns.join(", "));
        if self.chance(40) {
            text += &format!("WHERE {} ", self.condition(2));
        }
        text
    }

    fn pattern(&mut self, steps: &mut usize, is_joined: bool) -> String {
        let mut text = match self.any_node() {
            Some(name) if is_joined => format!("({name})"),
            _ => self.node(),
        };
        let wanted = self.pick(&["0", "1", "1", "1", "2", "2", "2", "2", "3"]);
        for _ in 0..wanted.parse::<usize>().unwrap().min(*steps) {
            *steps -= 1;
            text += &self.step();
            text += &self.node();
        }
        text
    }

    fn node(&mut self) -> String {
        let name = match self.random.u8(..20) {
            0 => String::new(),
            1..=3 if !self.nodes.is_empty() => self.any_node().unwrap(),
            _ => {
                let name = self.fresh("n");
                self.nodes.push(name.clone());
                name
            }
        };
        let label = match self.chance(14) {
            true => self.pick(&[":A", ":B", ":A", ":A:B"]),
            false => "",
        };
        let properties = match self.chance(3) {
            true => self.pick(&[" {i: 1}", " {q: $t}", " {i: 2, q: 'a'}"]),
            false => "",
        };
        format!("({name}{label}{properties})")
    }

    fn step(&mut self) -> String {
        let kinds = match self.random.u8(..40) {
            0 => "",
            1 => ":T|U",
            2 => ":V",
            3..=12 => ":U",
            _ => ":T",
        };
        let name = match self.chance(18) {
            true => {
                let name = self.fresh("r");
                self.relationships.push(name.clone());
                name
            }
            false => String::new(),
        };
        let more = match self.random.u8(..80) {
            0 if name.is_empty() => "*1..2",
            1 if name.is_empty() => " {w: 1}",
            _ => "",
        };
        match self.random.u8(..24) {
            0..=11 => format!("-[{name}{kinds}{more}]->"),
            12..=22 => format!("<-[{name}{kinds}{more}]-"),
            _ => format!("-[{name}{kinds}{more}]-"),
        }
    }

    /// In the texts, `@` and `&` stand for nodes, `~` for another variable. Hardly one fails: then there would be nothing to compare.
    fn condition(&mut self, depth: usize) -> String {
        if depth > 0 && self.chance(35) {
            let (a, b) = (self.condition(depth - 1), self.condition(depth - 1));
            return match self.random.u8(..7) {
                0..=2 => format!("({a} AND {b})"),
                3..=4 => format!("({a} OR {b})"),
                5 => format!("NOT ({a})"),
                _ => format!("({a} XOR {b})"),
            };
        }
        let relationships = self.relationships.clone();
        if let Some(r) = self.one_of(&relationships)
            && self.chance(15)
        {
            return self.pick(&["type(~) = 'T'", "~.w > 0"]).replace('~', &r);
        }
        let values = self.values.clone();
        if let Some(x) = self.one_of(&values)
            && self.chance(25)
        {
            let of = ["~ > 1", "~ IS NULL", "~ = $x", "~ <> 2", "~ IN [1, 2, 'a']"];
            return self.pick(&of).replace('~', &x);
        }
        let (Some(n), Some(m)) = (self.any_node(), self.any_node()) else {
            return self.pick(&["true", "null", "$x = 1", "1 < 2"]).to_owned();
        };
        let of = [
            "@:A",
            "@:A",
            "@:B",
            "@:A|B",
            "NOT @:A",
            "@.i > 1",
            "@.i < $x",
            "@.i <= 2",
            "@.p < 2",
            "@.p = $x",
            "@.p <> 'a'",
            "@.q = $t",
            "@.p IS NULL",
            "@.q IS NOT NULL",
            "@.i = null",
            "@.p IN [1, 'a', null]",
            "@.i IN $list",
            "@.q STARTS WITH 'a'",
            "@.q CONTAINS 'b'",
            "toUpper(@.q) = 'A'",
            "size(@.q) > 1",
            "size(@.p) > 1",
            "@ = &",
            "@ <> &",
            "@.p = &.p",
            "@.i < &.i",
            "@.i + &.i > 2",
            "[y IN [@.i, &.i] WHERE y > 1] <> []",
            "CASE WHEN @:A THEN &:B ELSE @.i > 0 END",
            "EXISTS { MATCH (@)-[:U]->() }",
            "coalesce(@.q, &.q, 'z') < 'b'",
            "rand() < 2",
            "@.flag",
        ];
        self.pick(&of).replace('@', &n).replace('&', &m)
    }

    /// Renames, computes, makes groups, or takes lists apart.
    fn with(&mut self) -> String {
        let kept: Vec<String> = match self.chance(40) {
            true => self.nodes.clone(),
            false => {
                let all = self.nodes.clone();
                let some = all.into_iter().filter(|_| self.random.bool());
                some.collect()
            }
        };
        let mut items = kept.clone();
        let (mut values, all) = (Vec::new(), self.nodes.clone());
        if self.chance(45) {
            let name = self.fresh("x");
            items.push(format!("{} AS {name}", self.expression()));
            values.push(name);
        }
        self.nodes = kept;
        if let Some(renamed) = self.one_of(&all)
            && self.chance(20)
        {
            let name = self.fresh("m");
            items.push(format!("{renamed} AS {name}"));
            self.nodes.push(name);
        }
        let relationships = self.relationships.clone();
        self.relationships = match self.one_of(&relationships) {
            Some(r) if self.chance(20) => {
                items.push(r.clone());
                vec![r]
            }
            _ => Vec::new(),
        };
        let mut after = String::new();
        if self.chance(20) {
            let name = self.fresh("c");
            let of = self.one_of(&all);
            match (of, self.chance(30)) {
                (Some(n), true) => {
                    let each = self.fresh("z");
                    items.push(format!("collect(DISTINCT {n}) AS {name}"));
                    after = format!("UNWIND {name} AS {each} ");
                    self.nodes.push(each);
                }
                (Some(n), false) => {
                    items.push(format!("count({n}.i) AS {name}"));
                    values.push(name);
                }
                _ => {
                    items.push(format!("count(*) AS {name}"));
                    values.push(name);
                }
            }
        }
        if items.is_empty() {
            items.push("1 AS one".into());
            values.push("one".into());
        }
        self.values = values;
        let distinct = if self.chance(4) { "DISTINCT " } else { "" };
        let mut text = format!("WITH {distinct}{} ", items.join(", "));
        if after.is_empty() && self.chance(30) {
            text += &format!("WHERE {} ", self.condition(1));
        }
        text + &after
    }

    /// Of a node, or of two, or of a value.
    fn expression(&mut self) -> String {
        let values = self.values.clone();
        if let Some(x) = self.one_of(&values)
            && self.chance(25)
        {
            return x;
        }
        let relationships = self.relationships.clone();
        if let Some(r) = self.one_of(&relationships)
            && self.chance(15)
        {
            return self.pick(&["~", "type(~)", "~.w"]).replace('~', &r);
        }
        let (Some(n), Some(m)) = (self.any_node(), self.any_node()) else {
            return self.pick(&["1", "$x", "null"]).to_owned();
        };
        let of = [
            "@",
            "@.p",
            "@.p",
            "@.q",
            "@.i",
            "@.i",
            "@.i + 1",
            "@.i * &.i",
            "@:A",
            "labels(@)",
            "coalesce(@.p, 'none')",
            "CASE WHEN @:A THEN @.i ELSE -1 END",
            "@.p = &.p",
            "[@.i, &.i]",
            "{a: @.p}",
            "@.q + 'x'",
            "&:A|B",
            "@.i > $x",
            "@ IS NULL",
        ];
        self.pick(&of).replace('@', &n).replace('&', &m)
    }

    /// A number, or null.
    fn number(&mut self) -> String {
        let (Some(n), Some(m)) = (self.any_node(), self.any_node()) else {
            return self.pick(&["1", "$x", "null", "0.5"]).to_owned();
        };
        let of = ["@.i", "@.i", "@.i * 2", "@.i + &.i", "size(@.q)", "$x"];
        let of = self.pick(&of);
        of.replace('@', &n).replace('&', &m)
    }

    fn aggregate(&mut self) -> String {
        let (expression, number) = (self.expression(), self.number());
        let node = self.any_node().unwrap_or_else(|| "1".into());
        let of = [
            "count(*)",
            "count(*)",
            "count(@)",
            "count(DISTINCT @)",
            "count(^)",
            "count(DISTINCT ^)",
            "sum(#)",
            "sum(#)",
            "sum(DISTINCT #)",
            "avg(#)",
            "avg(DISTINCT #)",
            "min(^)",
            "max(^)",
            "collect(^)",
            "collect(DISTINCT ^)",
            "collect(@)",
            "percentileCont(#, 0.5)",
            "percentileDisc(#, 0.5)",
            "stDev(#)",
            "stDevP(DISTINCT #)",
            "count(*) + 1",
            "sum(#) + count(^)",
            "sum(^)",
        ];
        // Those that know no weights are half of the list, and one of them is enough.
        let of = match self.chance(50) {
            true => &of[..13],
            false => &of[..],
        };
        let text = self.pick(of).replace('@', &node).replace('#', &number);
        text.replace('^', &expression)
    }

    /// The keys come first: rows are sorted by them.
    fn answer(&mut self) -> String {
        if self.chance(45) {
            // Nothing but one node is read: equal rows become one.
            self.nodes = self.any_node().into_iter().collect();
            self.relationships.clear();
            self.values.clear();
        }
        let mut items = Vec::new();
        let makes_groups = self.chance(75);
        for _ in 0..self.random.usize(usize::from(!makes_groups)..3) {
            items.push(self.expression());
        }
        if makes_groups {
            for _ in 0..self.random.usize(1..=3) {
                items.push(self.aggregate());
            }
        }
        for (at, item) in items.iter_mut().enumerate() {
            *item += &format!(" AS v{at}");
        }
        let order = match self.random.u8(..20) {
            0..=1 => " ORDER BY v0",
            2 => " LIMIT 3",
            _ => "",
        };
        let distinct = if self.chance(5) { "DISTINCT " } else { "" };
        format!("RETURN {distinct}{}{order}", items.join(", "))
    }
}

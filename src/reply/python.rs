//! Python source: does it parse, what does it define, what of it does one function need.
//!
//! The only file that knows the parser (ruff's), which makes no promise about its interface between versions.
//! Parsing runs on a thread with a large stack: a reply may nest as deeply as it is long, and a syntax tree is walked
//! and dropped by recursion.

use std::collections::{BTreeSet, HashMap};

use ruff_python_ast::token::TokenKind;
use ruff_python_ast::visitor::{Visitor, walk_expr, walk_stmt};
use ruff_python_ast::{Expr, ExprContext, ModModule, Stmt};
use ruff_python_parser::{LexicalErrorType, ParseErrorType, Parsed, parse_module};
use ruff_text_size::Ranged;

/// Longer texts are taken as no Python: hours of typing, and no model's reply.
const MAX_BYTES: usize = 256 << 10;
/// A kibibyte for each byte of text: more than one level of any nesting takes.
const STACK_BYTES: usize = 256 << 20;

/// Whether the text is a complete Python module (an empty one is).
pub fn parses(source: &str) -> bool {
    on_deep_stack(|| parse(source).is_some())
}

/// Names that the module binds at its top level, in order. `None` when it does not parse.
pub fn definitions(source: &str) -> Option<BTreeSet<String>> {
    on_deep_stack(|| parse(source).map(|module| bound_names(module.syntax())))
}

/// Whether the module defines the name at its top level. `false` when it does not parse.
pub fn defines(source: &str, name: &str) -> bool {
    definitions(source).is_some_and(|names| names.contains(name))
}

/// The longest run of lines that parses, trimmed; with an entry point, the longest that defines it when there is one.
///
/// Prose between pieces of code ends a run. Takes time linear in the text, whatever it holds.
pub fn longest_parsable_run(text: &str, entry_point: Option<&str>) -> Option<String> {
    if text.len() > MAX_BYTES {
        return None;
    }
    on_deep_stack(|| {
        let runs = parsable_runs(text);
        let defining = |run: &&String| {
            let module = parse(run);
            entry_point.is_some_and(|name| module.is_some_and(|module| bound_names(module.syntax()).contains(name)))
        };
        // Of equally long runs the first is taken: `max_by_key` returns the last.
        let longest = |runs: Vec<&String>| runs.into_iter().rev().max_by_key(|run| run.len()).cloned();
        longest(runs.iter().filter(defining).collect()).or_else(|| longest(runs.iter().collect()))
    })
}

/// Keeps imports and the top-level definitions that the entry point, or a name of `also`, reaches by name; drops the
/// rest (prints, example calls, `if __name__ == …`). A text that does not parse, or does not define the entry point, is
/// returned as it is.
///
/// Every definition of a kept name stays, since the last one counts. A block (`if`, `try`, `with`, …) stays when it
/// binds a name that is needed.
pub fn sanitize(source: &str, entry_point: &str, also: &BTreeSet<String>) -> String {
    on_deep_stack(|| {
        let Some(module) = parse(source) else { return source.to_string() };
        let statements = &module.syntax().body;
        let Some(kept) = reachable(statements, entry_point, also) else { return source.to_string() };
        let mut program = String::new();
        for (statement, _) in statements.iter().zip(kept).filter(|(_, is_kept)| *is_kept) {
            program.push_str(&source[statement.range().to_std_range()]);
            program.push('\n');
        }
        program
    })
}

/// The module with its spelling evened out: comments and blank lines dropped, one space between tokens. Two programs
/// that differ in layout alone have the same form; `None` when it does not parse.
pub fn canonical(source: &str) -> Option<String> {
    on_deep_stack(|| {
        let module = parse(source)?;
        let mut form = String::new();
        for token in module.tokens() {
            match token.kind() {
                TokenKind::Comment | TokenKind::NonLogicalNewline | TokenKind::EndOfFile => {}
                TokenKind::Newline => form.push('\n'),
                TokenKind::Indent => form.push_str("{ "),
                TokenKind::Dedent => form.push_str("} "),
                _ => {
                    form.push_str(&source[token.range().to_std_range()]);
                    form.push(' ');
                }
            }
        }
        Some(form)
    })
}

/// Names of the methods that `unittest` would load from a class of the module: those that start with `test`, each
/// once. `None` when the module does not parse or has no such class at its top level.
pub fn test_methods(source: &str, class: &str) -> Option<BTreeSet<String>> {
    on_deep_stack(|| {
        let module = parse(source)?;
        let body = module.syntax().body.iter().rev().find_map(|statement| match statement {
            Stmt::ClassDef(definition) if definition.name.as_str() == class => Some(&definition.body),
            _ => None,
        })?;
        let methods = body.iter().filter_map(|statement| match statement {
            Stmt::FunctionDef(method) if method.name.starts_with("test") => Some(method.name.to_string()),
            _ => None,
        });
        Some(methods.collect())
    })
}

/// Top-level packages of every import, wherever it stands; relative imports left out. `None` when it does not parse.
pub fn imports(source: &str) -> Option<BTreeSet<String>> {
    #[derive(Default)]
    struct Imports(BTreeSet<String>);

    impl<'a> Visitor<'a> for Imports {
        fn visit_stmt(&mut self, statement: &'a Stmt) {
            let package = |name: &str| name.split('.').next().unwrap_or_default().to_string();
            match statement {
                Stmt::Import(import) => self.0.extend(import.names.iter().map(|alias| package(&alias.name))),
                Stmt::ImportFrom(import) if import.level == 0 => {
                    self.0.extend(import.module.iter().map(|module| package(module)));
                }
                _ => walk_stmt(self, statement),
            }
        }
    }

    on_deep_stack(|| {
        let module = parse(source)?;
        let mut imports = Imports::default();
        module.syntax().body.iter().for_each(|statement| imports.visit_stmt(statement));
        Some(imports.0)
    })
}

fn on_deep_stack<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, work);
        let thread = thread.expect("a thread can be started");
        thread.join().expect("reading Python does not panic")
    })
}

fn parse(source: &str) -> Option<Parsed<ModModule>> {
    if source.len() > MAX_BYTES || source.contains('\0') {
        return None;
    }
    parse_module(source).ok()
}

/// Whether a piece of text is Python, is not, or may become so with more lines.
enum Verdict {
    Code,
    Unfinished,
    Prose,
}

fn judge(piece: &str) -> Verdict {
    let Err(error) = parse_module(piece) else { return Verdict::Code };
    let is_at_end = usize::from(error.location.start()) >= piece.trim_end().len();
    let is_open_string = matches!(
        &error.error,
        ParseErrorType::Lexical(
            LexicalErrorType::UnclosedStringError | LexicalErrorType::Eof | LexicalErrorType::FStringError(_)
        )
    );
    if is_at_end || is_open_string { Verdict::Unfinished } else { Verdict::Prose }
}

/// Maximal runs of neighbouring pieces that parse, each trimmed of blank lines around it.
fn parsable_runs(text: &str) -> Vec<String> {
    let pieces = pieces(text);
    // Pieces that open a bracket and never close it could each be tried against all that follows.
    let mut budget = 32 * text.len() + (1 << 20);
    let mut runs = Vec::new();
    let mut run = String::new();
    let mut next = 0;
    while next < pieces.len() {
        match code_from(&pieces[next..], &mut budget) {
            Some(count) => {
                run.extend(pieces[next..next + count].iter().copied());
                next += count;
            }
            None => {
                runs.push(std::mem::take(&mut run));
                next += 1;
            }
        }
    }
    runs.push(run);
    runs.iter().map(|run| run.trim_matches(['\n', '\r']).trim_end().to_string()).filter(|run| !run.is_empty()).collect()
}

/// How many pieces from the first on make up one piece of code.
fn code_from(pieces: &[&str], budget: &mut usize) -> Option<usize> {
    let mut joined = String::new();
    for (index, piece) in pieces.iter().enumerate() {
        joined.push_str(piece);
        *budget = budget.checked_sub(joined.len())?;
        match judge(&joined) {
            Verdict::Code => return Some(index + 1),
            Verdict::Unfinished => {}
            Verdict::Prose => return None,
        }
    }
    None
}

/// Cuts a text before each line that can start a top-level statement.
fn pieces(text: &str) -> Vec<&str> {
    let mut starts = Vec::new();
    let mut offset = 0;
    let mut is_decorated = false;
    for line in text.split_inclusive('\n') {
        if starts.is_empty() || (!is_decorated && starts_statement(line)) {
            starts.push(offset);
        }
        if !line.trim().is_empty() {
            is_decorated = line.starts_with('@');
        }
        offset += line.len();
    }
    starts.push(text.len());
    starts.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect()
}

fn starts_statement(line: &str) -> bool {
    let continues = line.starts_with([' ', '\t', ')', ']', '}', '\n', '\r']);
    let first_word = line.split(|character: char| !character.is_alphanumeric() && character != '_').next();
    !continues && !matches!(first_word, Some("else" | "elif" | "except" | "finally"))
}

/// Which top-level statements to keep; `None` when nothing defines the entry point.
fn reachable(statements: &[Stmt], entry_point: &str, also: &BTreeSet<String>) -> Option<Vec<bool>> {
    let facts: Vec<Facts> = statements.iter().map(Facts::of).collect();
    let mut binders: HashMap<&str, Vec<usize>> = HashMap::new();
    for (index, fact) in facts.iter().enumerate() {
        fact.binds.iter().for_each(|name| binders.entry(name).or_default().push(index));
    }
    binders.get(entry_point)?;

    let mut kept: Vec<bool> = facts.iter().map(|fact| fact.is_import).collect();
    let mut wanted: Vec<&str> = also.iter().map(String::as_str).chain([entry_point]).collect();
    let mut seen: BTreeSet<&str> = wanted.iter().copied().collect();
    while let Some(name) = wanted.pop() {
        for index in binders.get(name).into_iter().flatten() {
            kept[*index] = true;
            wanted.extend(facts[*index].uses.iter().map(String::as_str).filter(|used| seen.insert(used)));
        }
    }
    Some(kept)
}

fn bound_names(module: &ModModule) -> BTreeSet<String> {
    module.body.iter().flat_map(|statement| Facts::of(statement).binds).collect()
}

/// What one top-level statement binds and which names it uses.
#[derive(Default)]
struct Facts {
    is_import: bool,
    binds: BTreeSet<String>,
    uses: BTreeSet<String>,
}

impl Facts {
    fn of(statement: &Stmt) -> Facts {
        let mut facts = Facts::default();
        match statement {
            Stmt::Import(_) | Stmt::ImportFrom(_) => facts.is_import = true,
            // Example calls and the like bind nothing that anyone could ask for.
            Stmt::Expr(_) => return facts,
            Stmt::If(branch) if is_main_guard(&branch.test) => return facts,
            _ => {}
        }
        facts.bind(statement);
        facts.visit_stmt(statement);
        facts
    }

    /// Notes what a statement binds in the scope it stands in.
    fn bind(&mut self, statement: &Stmt) {
        match statement {
            Stmt::FunctionDef(definition) => self.bind_name(&definition.name),
            Stmt::ClassDef(definition) => self.bind_name(&definition.name),
            Stmt::Assign(assignment) => assignment.targets.iter().for_each(|target| self.bind_target(target)),
            Stmt::AugAssign(assignment) => self.bind_target(&assignment.target),
            Stmt::AnnAssign(assignment) => self.bind_target(&assignment.target),
            Stmt::TypeAlias(alias) => self.bind_target(&alias.name),
            Stmt::Import(import) => import.names.iter().for_each(|alias| self.bind_alias(alias)),
            Stmt::ImportFrom(import) => import.names.iter().for_each(|alias| self.bind_alias(alias)),
            Stmt::For(each) => {
                self.bind_target(&each.target);
                self.bind_all(&each.body);
                self.bind_all(&each.orelse);
            }
            Stmt::While(repeat) => {
                self.bind_all(&repeat.body);
                self.bind_all(&repeat.orelse);
            }
            Stmt::If(branch) => {
                self.bind_all(&branch.body);
                branch.elif_else_clauses.iter().for_each(|clause| self.bind_all(&clause.body));
            }
            Stmt::With(with) => {
                with.items.iter().filter_map(|item| item.optional_vars.as_deref()).for_each(|t| self.bind_target(t));
                self.bind_all(&with.body);
            }
            Stmt::Match(choice) => choice.cases.iter().for_each(|case| self.bind_all(&case.body)),
            Stmt::Try(attempt) => {
                self.bind_all(&attempt.body);
                for handler in &attempt.handlers {
                    let ruff_python_ast::ExceptHandler::ExceptHandler(handler) = handler;
                    self.bind_all(&handler.body);
                }
                self.bind_all(&attempt.orelse);
                self.bind_all(&attempt.finalbody);
            }
            _ => {}
        }
    }

    fn bind_all(&mut self, statements: &[Stmt]) {
        statements.iter().for_each(|statement| self.bind(statement));
    }

    fn bind_name(&mut self, name: &str) {
        self.binds.insert(name.to_string());
    }

    fn bind_alias(&mut self, alias: &ruff_python_ast::Alias) {
        let name = alias.asname.as_ref().unwrap_or(&alias.name);
        self.bind_name(name.split('.').next().unwrap_or_default());
    }

    /// `a`, `a.b`, `a[0]`, `(a, *b)`: changing a part of a thing belongs to the thing.
    fn bind_target(&mut self, target: &Expr) {
        match target {
            Expr::Name(name) => self.bind_name(&name.id),
            Expr::Attribute(attribute) => self.bind_target(&attribute.value),
            Expr::Subscript(subscript) => self.bind_target(&subscript.value),
            Expr::Starred(starred) => self.bind_target(&starred.value),
            Expr::Tuple(tuple) => tuple.elts.iter().for_each(|element| self.bind_target(element)),
            Expr::List(list) => list.elts.iter().for_each(|element| self.bind_target(element)),
            _ => {}
        }
    }
}

impl<'a> Visitor<'a> for Facts {
    fn visit_stmt(&mut self, statement: &'a Stmt) {
        walk_stmt(self, statement);
    }

    fn visit_expr(&mut self, expression: &'a Expr) {
        if let Expr::Name(name) = expression
            && name.ctx == ExprContext::Load
        {
            self.uses.insert(name.id.to_string());
        }
        walk_expr(self, expression);
    }
}

/// `__name__ == "__main__"`, either way round.
fn is_main_guard(test: &Expr) -> bool {
    let Expr::Compare(compare) = test else { return false };
    let is_name = |side: &Expr| matches!(side, Expr::Name(name) if name.id.as_str() == "__name__");
    is_name(&compare.left) || compare.comparators.iter().any(is_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_as_great_as_the_text_is_no_crash() {
        for unit in ["(", "not ", "-", "a.", "1+", "[{", "lambda: ", "f'{", "x if y else ", "if a:\n "] {
            let text = unit.repeat(40_000 / unit.len());
            assert!(!parses(&text));
            assert!(longest_parsable_run(&text, None).is_none_or(|run| run.len() <= text.len()));
        }
        let sum = format!("x = {}1\n", "1+".repeat(60_000));
        assert!(parses(&sum));
        assert_eq!(sanitize(&format!("{sum}print(x)\n"), "x", &BTreeSet::new()), sum);
    }

    #[test]
    fn runs_end_at_prose_and_not_inside_strings_or_brackets() {
        let text = "Here you go.\n\nimport os\nX = [\n1,\n]\ndef f():\n    \"\"\"Text\nat the margin.\n    \"\"\"\n    \
                    return X\n\nThat is all, folks.\ny = 1\n";
        let run = longest_parsable_run(text, Some("f")).unwrap();
        assert!(run.starts_with("import os") && run.ends_with("return X"), "{run}");
        assert_eq!(longest_parsable_run("no code here, sorry.", None), None);
    }

    #[test]
    fn branches_and_decorators_stay_with_their_statement() {
        let text = "Well then:\n@wraps\n\ndef f():\n    pass\ntry:\n    import a\nexcept ImportError:\n    a = None\nelse:\n    pass\nSo it goes.";
        let run = longest_parsable_run(text, None).unwrap();
        assert!(run.starts_with("@wraps") && run.ends_with("else:\n    pass"), "{run}");
    }

    #[test]
    fn what_changes_a_needed_thing_is_kept() {
        let source = "memo = {}\nmemo[0] = 1\nother = 2\nother += 1\ntry:\n    import fast as backend\nexcept ImportError:\n    backend = None\ndef f(n):\n    return memo[n] if backend else 0\nprint(f(0))\n";
        let kept = sanitize(source, "f", &BTreeSet::new());
        assert!(kept.contains("memo[0] = 1") && kept.contains("backend = None"), "{kept}");
        assert!(!kept.contains("other") && !kept.contains("print"), "{kept}");
    }

    #[test]
    fn without_the_entry_point_everything_stays() {
        assert_eq!(sanitize("x = 1\nprint(x)\n", "f", &BTreeSet::new()), "x = 1\nprint(x)\n");
        assert_eq!(sanitize("def broken(:", "broken", &BTreeSet::new()), "def broken(:");
    }

    #[test]
    fn layout_does_not_change_the_canonical_form() {
        let one = canonical("def f(x):\n  # why\n  return x+1\n").unwrap();
        assert_eq!(canonical("def f( x ):\n\n        return x + 1").unwrap(), one);
        assert_ne!(canonical("def f(x):\n  return x+2\n").unwrap(), one);
        assert_ne!(canonical("if a:\n  b\n  c\n").unwrap(), canonical("if a:\n  b\nc\n").unwrap());
        assert_eq!(canonical("def ("), None);
    }

    #[test]
    fn imports_are_found_at_any_depth() {
        let source = "import os.path, json as j\ndef f():\n    if True:\n        from numpy.random import rand\nfrom . import x\n";
        let found: Vec<String> = imports(source).unwrap().into_iter().collect();
        assert_eq!(found, ["json", "numpy", "os"]);
    }

    #[test]
    fn tests_are_counted_as_the_library_loads_them() {
        let source = "class TestCases(Base):\n    def test_a(self): pass\n    def test_a(self): pass\n    async def test_b(self): pass\n    def helper(self): pass\n";
        assert_eq!(test_methods(source, "TestCases").unwrap().len(), 2);
        assert_eq!(test_methods(source, "Other"), None);
    }
}

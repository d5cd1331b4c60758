// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! PTX with one large variable each, written in all of the language's forms.

/// The number of forms.
const COUNT: usize = 100;

/// A generator of reproducible random numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }

    fn one_of<'a>(&mut self, choice: &[&'a str]) -> &'a str {
        choice[self.below(choice.len())]
    }
}

/// Text that may separate two words.
const GAPS: &[&str] = &[
    " ",
    "",
    "\t",
    "\n",
    "/**/",
    "//\n",
    " /* .global .b8 no[5]; */ ",
    "\r\n",
];

/// A number in one of the language's forms.
fn number(random: &mut Random, value: u64) -> String {
    let suffix = random.one_of(&["", "U"]);
    match random.below(5) {
        0 => format!("0x{value:x}{suffix}"),
        1 => format!("0X{value:X}{suffix}"),
        2 => format!("0{value:o}{suffix}"),
        3 => format!("0b{value:b}{suffix}"),
        _ => format!("{value}{suffix}"),
    }
}

/// The array sizes after a name, and an initial value.
fn extents(random: &mut Random, elements: u64, may_be_open: bool) -> String {
    let rows = 1 << random.below(6);
    match random.below(8) {
        0 => format!(
            "[{}][{}]",
            number(random, rows),
            number(random, elements / rows)
        ),
        1 if may_be_open => format!("[][{}] = {{{{1}}, {{2, 3}}}}", number(random, elements / 2)),
        _ => format!("[{}]", number(random, elements)),
    }
}

/// A declaration of the variable `big`.
fn declaration(random: &mut Random, size: u64, is_in_function: bool) -> String {
    let mut words = Vec::new();
    if !is_in_function {
        words.push(
            random
                .one_of(&[".visible", ".weak", ".common", ""])
                .to_owned(),
        );
    }
    if random.below(6) == 0 {
        words.push(".attribute(.managed)".to_owned());
        words.push(".global".to_owned());
    } else {
        words.push(".global".to_owned());
        words.push(random.one_of(&["", "", ".attribute(.managed)"]).to_owned());
    }
    // A number includes a dot that follows it.
    words.push(random.one_of(&["", ".align 16 ", ".align 256 "]).to_owned());
    let types = [
        ("", ".b8", 1),
        ("", ".u16", 2),
        ("", ".f32", 4),
        ("", ".s64", 8),
        (".v4", ".f32", 16),
        (".v2", ".u64", 16),
        (".v2", ".b8", 2),
    ];
    let (vector, kind, bytes) = types[random.below(types.len())];
    words.extend([vector.to_owned(), kind.to_owned()]);
    let mut text = String::new();
    for word in words.iter().filter(|word| !word.is_empty()) {
        text += word;
        text += random.one_of(GAPS);
    }
    text += random.one_of(&[" ", "\n", "/**/", "%"]);
    text += random.one_of(&["big", "big", "$big", "_big"]);
    // Initial values have the type, and common variables have none.
    let may_be_open = vector.is_empty() && kind != ".f32" && !text.contains(".common");
    text += &extents(random, size / bytes, may_be_open);
    text += random.one_of(&["", ", more[16]"]);
    text + random.one_of(GAPS) + ";"
}

/// A module with the variable, and a kernel.
fn form(random: &mut Random, size: u64) -> String {
    let head = random.one_of(&[
        ".version 8.0\n.target sm_80\n.address_size 64\n",
        ".version 8.0 .target sm_80 .address_size 64 ",
        "// made by hand\n.version\t8.0\r\n.target/**/sm_80\n.address_size/**/64\n",
        "\u{1a}.version 8.0 .target sm_80 .address_size 64/**/",
    ]);
    let before = random.one_of(&[
        "",
        "",
        ".file 1 \"x.cu\"",
        ".visible .func f() { ret; }",
        "/* /* */",
        "// \\\n",
        "//*\n",
    ]);
    let is_in_function = random.below(4) == 0;
    let declaration = declaration(random, size, is_in_function);
    if is_in_function {
        let label = random.one_of(&["", "L:", "{", "@%p1 bra M; M:"]);
        let end = if label == "{" { "}" } else { "" };
        return format!(
            "{head}{before}\n.visible .entry k(.param .u64 .ptr .global .align 8 p) {{ .reg .pred %p<2>; setp.eq.u32 %p1, 1, 1; \
             {label} {declaration} {end} ret; }}\n"
        );
    }
    format!("{head}{before}{declaration}\n.visible .entry k() {{ ret; }}\n")
}

/// The forms for a seed, with a variable of `size` bytes.
pub fn generate(seed: u64, size: u64) -> Vec<String> {
    let mut random = Random(seed);
    (0..COUNT).map(|_| form(&mut random, size)).collect()
}

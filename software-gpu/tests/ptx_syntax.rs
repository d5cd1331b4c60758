// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Forms of operands: constant expressions, elements of arrays, registers in calls.

#[path = "ptx/device.rs"]
mod device;

use device::{Device, Params, shape};
use software_gpu::exec::{LoadError, LoadedModule};
use software_gpu::ptx;

/// A module with a kernel `k` of this body, after other definitions. `%out` is the address of a thread's eight bytes,
/// `%t` the thread's number; the body can use `%r`, `%rd`, `%f`, `%h` and `%p`.
fn text(definitions: &str, body: &str) -> String {
    format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n{definitions}\n.visible .entry k(.param .u64 out) {{\n\
         .reg .b64 %out; .reg .b32 %t; .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .f32 %f<9>; .reg .b16 %h<9>;\n\
         .reg .pred %p<9>; ld.param.u64 %out, [out]; mov.u32 %t, %tid.x; mul.wide.u32 %rd8, %t, 8;\n\
         add.u64 %out, %out, %rd8;\n{body}\nret; }}\n"
    )
}

/// The results of the threads `0..threads`.
fn run(definitions: &str, body: &str, threads: u32) -> Vec<u64> {
    let mut d = Device::new(&text(definitions, body), 1 << 20);
    let out = d.put(&vec![0u64; threads as usize]);
    d.launch("k", &shape(1, threads), &Params::new().add(out))
        .unwrap_or_else(|e| panic!("{body}: {e}"));
    d.get(out, threads as usize)
}

/// The reason that a module is refused.
fn refused(definitions: &str, body: &str) -> String {
    let text = text(definitions, body);
    let module = match ptx::parse(&text) {
        Ok(module) => module,
        Err(e) => return e.to_string(),
    };
    match LoadedModule::new(module.into(), |_| Ok::<_, ()>(0)) {
        Ok(_) => panic!("accepted: {text:.600}"),
        Err(LoadError::Ptx(e)) => e.to_string(),
        Err(e) => format!("{e:?}"),
    }
}

/// Expressions and their values, as ptxas 13.0 computes them.
const EXPRESSIONS: [(&str, i64); 53] = [
    ("3+4*2", 11),
    ("(3+4)*2", 14),
    ("2-3-4", -5),
    ("- -5", 5),
    ("--5", 5),
    ("+5", 5),
    ("~0", -1),
    ("~0x2", -3),
    ("!5", 0),
    ("!0", 1),
    ("!-1", 0),
    ("-7/2", -3),
    ("7U/-1", 0),
    ("18446744073709551615/2", i64::MAX),
    ("-18446744073709551615", 1),
    ("(0-9223372036854775807-1)/-1", i64::MIN),
    ("7 % 4", 3),
    ("-7 % 4", 1),
    ("7%-4", 7),
    ("(-2 % -1)<0", 0),
    ("-8>>1", -4),
    ("(.u64)-8>>1", 0x7fff_ffff_ffff_fffc),
    ("~0>>1", i64::MAX),
    ("-(3U)>>1", 0x7fff_ffff_ffff_fffe),
    ("1<<63>>63", -1),
    ("1U<<63>>63", 1),
    ("1<<64", 1),
    ("1<<-1", i64::MIN),
    ("-5>>64", -5),
    ("-1<0", 1),
    ("-1<0U", 0),
    ("-1<0xFFFFFFFFFFFFFFFF", 0),
    ("(.s64)3U-4<0", 1),
    ("3U-4<0", 0),
    ("3>2>1", 0),
    ("2>=2", 1),
    ("3<=2", 0),
    ("3!=2", 1),
    ("1==1==1", 1),
    ("6&3==3", 0),
    ("1|2^3&4", 3),
    ("(5^6)>>1", 1),
    ("(-1&-1)>>60", -1),
    ("(-1|0)<0", 1),
    ("1&&2", 1),
    ("0||0", 0),
    ("1<2?3:4?5:6", 3),
    ("0?2:0?5:6", 6),
    ("(1?-1:2U)>>1", -1),
    ("(!0-2)<0", 1),
    ("WARP_SZ*2", 64),
    ("010+0x10+0b11", 27),
    ("(1.5<2.0)+(1.0+2.0==3.0)*2", 3),
];

#[test]
fn constant_expressions_are_operands() {
    for (expression, value) in EXPRESSIONS {
        let body = format!("mov.u64 %rd0, {expression}; st.global.u64 [%out], %rd0;");
        assert_eq!(run("", &body, 1), [value as u64], "{expression}");
    }
    let body = "mov.f32 %f0, 1.0+2.0*0.25; st.global.f32 [%out], %f0;\n\
                mov.b64 {%r0, %r1}, %out; mov.b64 %rd1, {1+1, 2*2}; and.b64 %rd1, %rd1, ~0x2;\n\
                cvt.u32.u64 %r0, %rd1; st.global.u32 [%out+(1<<2)], %r0;";
    assert_eq!(run("", body, 1), [u64::from(1.5f32.to_bits())]);
}

#[test]
fn constant_expressions_are_initialisers() {
    let values = EXPRESSIONS.map(|(expression, _)| expression).join(", ");
    let table = format!(".global .u64 t[] = {{{values}}};");
    let body = "mul.wide.u32 %rd0, %t, 8; mov.u64 %rd1, t; add.u64 %rd0, %rd0, %rd1;\n\
                ld.global.u64 %rd0, [%rd0]; st.global.u64 [%out], %rd0;";
    let got = run(&table, body, EXPRESSIONS.len() as u32);
    assert_eq!(got, EXPRESSIONS.map(|(_, value)| value as u64));
    let others =
        ".global .u16 a = 3+4*2; .global .f32 b[2] = {-1.5, (0.5)}; .global .u64 c = a+(1<<1)-2;";
    let body = "ld.global.u16 %r0, [a]; ld.global.u64 %rd0, [c]; ld.global.u16 %r1, [%rd0];\n\
                add.u32 %r0, %r0, %r1; ld.global.f32 %f0, [b]; ld.global.f32 %f1, [b+8/2];\n\
                fma.rn.f32 %f0, %f0, 4.0, %f1; cvt.rni.s32.f32 %r1, %f0; st.global.v2.u32 [%out], {%r0, %r1};";
    let want = 22 | u64::from(-6i32 as u32) << 32;
    assert_eq!(run(others, body, 1), [want]);
}

#[test]
fn constant_expressions_are_offsets() {
    let table = ".global .u32 t[4] = {10, 20, 30, 40};";
    let loads = [
        ("[t+8*2-4]", 40),
        ("[t+(1<<3)]", 30),
        ("[t+1<<3]", 30),
        ("[t+(4==4?8:0)]", 30),
        ("[%rd1+2*4]", 30),
        ("[%rd1+(1<<3)-4]", 20),
        ("[%rd1-4*1+8]", 20),
        ("[%rd2]", 30),
    ];
    for (address, value) in loads {
        let body = format!(
            "mov.u64 %rd1, t; mov.u64 %rd2, t+4*2; ld.global.u32 %r0, {address};\n\
             cvt.u64.u32 %rd0, %r0; st.global.u64 [%out], %rd0;"
        );
        assert_eq!(run(table, &body, 1), [value], "{address}");
    }
}

#[test]
fn other_expressions_are_refused() {
    for (expression, why) in [
        ("5/0", "division by zero"),
        ("5 % 0", "division by zero"),
        ("0&&1/0", "division by zero"),
        ("1+2.0", "do not go together"),
        ("0f3F800000+1.0", "do not go together"),
        ("~1.0", "integer constant expected"),
        ("!0f3F800000", "integer constant expected"),
        ("1.0?2:3", "integer constant expected"),
        ("1.0&2.0", "integer constant expected"),
        ("(.s64)1.0", "integer constant expected"),
        ("(.u32)1", "expected a constant"),
        ("1?2", "expected ':'"),
        ("(1", "expected ')'"),
        ("1+", "expected a constant"),
        ("1+%rd1", "expected a constant"),
    ] {
        let why_not = refused("", &format!("mov.u64 %rd0, {expression};"));
        assert!(why_not.contains(why), "{expression}: {why_not}");
        let why_not = refused(&format!(".global .u64 a = {expression};"), "");
        assert!(why_not.contains(why), "{expression}: {why_not}");
    }
    for piece in ["(", "~", "-", "+", "!", "(.s64)", "1?", "1?1:", "1+(2*"] {
        let deep = piece.repeat(100_000);
        let why_not = refused("", &format!("mov.u64 %rd0, {deep}"));
        assert!(why_not.contains("nested too deeply"), "{piece}: {why_not}");
        let why_not = refused(&format!(".global .u64 a = {deep}"), "");
        assert!(why_not.contains("nested too deeply"), "{piece}: {why_not}");
    }
    let deep = "[%rd1, ".repeat(100_000);
    let why_not = refused("", &format!("mov.u64 %rd0, {deep}"));
    assert!(why_not.contains("nested too deeply"), "{why_not}");
}

/// A load of `element` by each of four threads, with `%r0` the thread's number and `%rd0` a 64-bit one.
fn elements(definitions: &str, load: &str) -> Vec<u64> {
    let body = format!(
        "mov.u32 %r0, %t; cvt.u64.u32 %rd0, %t; cvt.u16.u32 %h0, %t; mov.u64 %rd1, 0;\n{load}\n\
         st.global.u64 [%out], %rd1;"
    );
    run(definitions, &body, 4)
}

const TABLE: &str = ".global .u32 t[8] = {10, 20, 30, 40, 50, 60, 70, 80};";

#[test]
fn elements_of_arrays_are_operands() {
    for (element, values) in [
        ("t[2]", [30; 4]),
        ("t[1+2*3]", [80; 4]),
        ("t[%r0]", [10, 20, 30, 40]),
        ("t[%rd0]", [10, 20, 30, 40]),
        ("t[%h0]", [10, 20, 30, 40]),
        ("t[%r0+1]", [20, 30, 40, 50]),
        ("t[%rd0+2*2]", [50, 60, 70, 80]),
        ("t[%h0+(1<<1)]", [30, 40, 50, 60]),
        ("t[%r0+-1+1]", [10, 20, 30, 40]),
    ] {
        let load = format!("ld.global.u32 %rd1, {element};");
        assert_eq!(elements(TABLE, &load), values, "{element}");
        let address = format!("mov.u64 %rd2, {element}; ld.global.u32 %rd1, [%rd2];");
        assert_eq!(elements(TABLE, &address), values, "{element}");
    }
}

/// The size of an element is the declared one, whatever an instruction loads.
#[test]
fn elements_have_their_declared_size() {
    let bytes = ".global .align 4 .b8 t[8] = {1, 2, 3, 4, 5, 6, 7, 8};";
    let load = "mov.u64 %rd2, t[4]; ld.global.u32 %rd1, t[4]; mul.lo.u32 %r1, %r0, 2; ld.global.u8 %rd3, t[%r1];\n\
                shl.b64 %rd3, %rd3, 32; or.b64 %rd1, %rd1, %rd3;";
    let want = [1u64, 3, 5, 7].map(|byte| 0x0807_0605 | byte << 32);
    assert_eq!(elements(bytes, load), want);
    // For a row and a vector, it is the size of a number.
    let rows = ".global .b32 t[2][3] = {1, 2, 3, 4, 5, 6}; .global .v4 .b32 v[2] = {1, 2, 3, 4, 5, 6, 7, 8};";
    let load =
        "ld.global.u32 %rd1, t[2]; ld.global.u32 %rd2, v[%r0+1]; mad.lo.u64 %rd1, %rd1, 10, %rd2;";
    assert_eq!(elements(rows, load), [32, 33, 34, 35]);
}

/// ptxas multiplies in 32 bits, and adds the product as an unsigned one.
#[test]
fn indices_have_32_bits() {
    let load = "add.u32 %r0, %r0, 0xC0000000; mov.u64 %rd1, t[%r0];\n\
                add.u64 %rd0, %rd0, 0x700000000; mov.u64 %rd2, t[%rd0]; mov.u64 %rd3, t;\n\
                sub.u64 %rd1, %rd1, %rd3; sub.u64 %rd2, %rd2, %rd3; mad.lo.u64 %rd1, %rd1, 100, %rd2;";
    assert_eq!(elements(TABLE, load), [0, 404, 808, 1212]);
    let load =
        "sub.u32 %r0, %r0, 1; mov.u64 %rd1, t[%r0]; mov.u64 %rd3, t; sub.u64 %rd1, %rd1, %rd3;";
    assert_eq!(elements(TABLE, load), [0xffff_fffc, 0, 4, 8]);
}

#[test]
fn arrays_of_all_spaces_have_elements() {
    let constants = ".const .u16 c[4] = {7, 8, 9, 10}; .global .u64 scalar; .extern .shared .align 8 .b8 dynamic[];";
    let load = ".local .b64 l[4]; .shared .b32 s[8]; .reg .pred %q;\n\
                st.local.u64 l[%r0], 100; st.local.u64 l[3], 5; ld.local.u64 %rd1, l[%r0];\n\
                st.shared.u32 s[%r0+4], %r0; bar.sync 0; ld.shared.u32 %r1, s[6]; ld.const.u16 %r2, c[%r0];\n\
                setp.eq.u32 %q, %r0, 1; @%q ld.const.u16 %r2, c[%r0+2]; add.u32 %r1, %r1, %r2;\n\
                cvt.u64.u32 %rd2, %r1; mad.lo.u64 %rd1, %rd1, 1000, %rd2;";
    let want = [100_009, 100_012, 100_011, 5_012];
    assert_eq!(elements(constants, load), want);
    // A parameter of a kernel and one of a function.
    let definitions = ".func (.param .u64 sum) f(.param .align 8 .b8 in[32], .param .u32 at) {\n\
         .reg .b32 %i; .reg .b64 %x, %y; ld.param.u32 %i, [at]; mul.lo.u32 %i, %i, 8; ld.param.u64 %x, in[%i];\n\
         ld.param.u64 %y, in[24]; add.u64 %x, %x, %y; st.param.u64 [sum], %x; ret; }";
    let load = "{ .param .align 8 .b8 in[32]; .param .u32 at; .param .u64 sum; st.param.u64 in[0], 1;\n\
                st.param.u64 in[8], 20; st.param.u64 in[16], 300; st.param.u64 in[24], 4000; st.param.u32 [at], %r0;\n\
                call (sum), f, (in, at); ld.param.u64 %rd1, [sum]; }";
    assert_eq!(elements(definitions, load), [4001, 4020, 4300, 8000]);
    let mut d = Device::new(
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 out, .param .u32 p[4]) {\n\
         .reg .b32 %r<3>; .reg .b64 %rd<3>; mov.u32 %r0, %tid.x; ld.param.u64 %rd0, [out];\n\
         mul.wide.u32 %rd1, %r0, 4; add.u64 %rd0, %rd0, %rd1; ld.param.u32 %r1, p[%r0]; ld.param.u32 %r2, p[3];\n\
         add.u32 %r1, %r1, %r2; st.global.u32 [%rd0], %r1; ret; }\n",
        1 << 16,
    );
    let out = d.put(&[0u32; 4]);
    let params = Params::new().add(out).add([1u32, 2, 3, 40]);
    d.launch("k", &shape(1, 4), &params).unwrap();
    assert_eq!(d.get::<u32>(out, 4), [41, 42, 43, 80]);
}

#[test]
fn a_label_before_an_element_leads_to_its_index() {
    let load = "mov.u32 %r1, 0; L: ld.global.u32 %rd2, t[%r1]; add.u64 %rd1, %rd1, %rd2; add.u32 %r1, %r1, 1;\n\
                setp.le.u32 %p1, %r1, %r0; @%p1 bra L;";
    assert_eq!(elements(TABLE, load), [10, 30, 60, 100]);
    // Two elements in one instruction.
    let load = "sub.u64 %rd1, t[%r0+4], t[%rd0];";
    assert_eq!(elements(TABLE, load), [16; 4]);
}

#[test]
fn other_elements_are_refused() {
    let rows = ".global .b32 t[4][3]; .global .u32 scalar;";
    for (body, why) in [
        ("ld.global.u32 %r0, t[2][1];", "expected ','"),
        ("ld.global.u32 %r0, [t[2]];", "expected ']'"),
        ("ld.global.u32 %r0, t[%r1-1];", "expected ']'"),
        ("ld.global.u32 %r0, t[1+%r1];", "expected a constant"),
        ("ld.global.u32 %r0, t[%p1];", "index of 16, 32 or 64 bits"),
        ("ld.global.u32 %r0, t[];", "expected a constant"),
        ("ld.global.u32 %r0, t[1.0];", "integer constant expected"),
        ("ld.global.u32 %r0, t[1/0];", "division by zero"),
        ("ld.global.u32 %r0, scalar[0];", "only arrays"),
        ("mov.u64 %rd0, k[1];", "only arrays"),
        ("ld.global.u32 %r0, %rd1[1];", "expected ','"),
        ("ld.global.u32 %r0, t[2", "expected ']'"),
        (
            "{ .param .b32 b[4]; st.param.b32 b[%r1], 1; }",
            "in a kernel",
        ),
    ] {
        let why_not = refused(rows, body);
        assert!(why_not.contains(why), "{body}: {why_not}");
    }
}

/// Functions whose parameters are registers, variables, or both.
const FUNCTIONS: &str = "
.visible .func (.reg .u32 result) both(.reg .u64 data, .param .align 4 .b8 more[8]) {
    .reg .b32 %x, %y;
    ld.global.b32 %x, [data+4];
    ld.param.b32 %y, [more+4];
    add.u32 result, %x, %y;
    ret;
}
.func (.param .u32 result) variables(.param .u64 data, .param .u32 more) {
    .reg .b32 %x, %y; .reg .b64 %at;
    ld.param.u64 %at, [data];
    ld.param.u32 %y, [more];
    ld.global.b32 %x, [%at+4];
    add.u32 %x, %x, %y;
    st.param.u32 [result], %x;
    ret;
}
.func (.reg .u32 quotient, .reg .u32 rest) divide(.reg .u32 a, .reg .u32 b) {
    .reg .pred %none;
    mov.u32 quotient, 77; mov.u32 rest, 88;
    setp.eq.u32 %none, b, 0;
    @%none ret;
    div.u32 quotient, a, b; rem.u32 rest, a, b;
}
.func (.reg .f32 r) floats(.reg .f32 a, .reg .f64 b, .param .f32 c) {
    .reg .f32 %b, %c; ld.param.f32 %c, [c]; cvt.rn.f32.f64 %b, b;
    add.f32 r, a, %b; fma.rn.f32 r, r, 8.0, %c;
}
.func nothing(.reg .u64 at) { .reg .u64 %v; ld.global.u64 %v, [at]; add.u64 %v, %v, 7; st.global.u64 [at], %v; }
.func (.reg .u32 r) factorial(.reg .u32 n) {
    .reg .pred %p; .reg .b32 %less;
    mov.u32 r, 1; setp.lt.u32 %p, n, 2; @%p ret;
    sub.u32 %less, n, 1; call (r), factorial, (%less); mul.lo.u32 r, r, n; ret.uni;
}
.func (.reg .u64 r) wide(.reg .u64 a, .reg .u16 b) { cvt.u64.u16 r, b; add.u64 r, r, a; }
.global .align 4 .b32 table[2] = {10, 20};
.global .u64 pointers[2] = {both, wide};
";

#[test]
fn registers_are_parameters_and_arguments() {
    let cases: [(&str, [u64; 4]); 14] = [
        // By name and by address, also with variables on this side.
        (
            "{ .param .b8 in[8]; st.param.b32 [in+4], %r0; call (%r1), both, (%rd2, in); }",
            [20, 21, 22, 23],
        ),
        (
            "{ proto: .callprototype (.reg .u32 _) _ (.reg .u64 data, .param .align 4 .b8 params[8]);\n\
             .param .b8 in[8]; st.param.b32 [in+4], %r0; mov.u64 %rd3, both;\n\
             call (%r1), %rd3, (%rd2, in), proto; }",
            [20, 21, 22, 23],
        ),
        (
            "{ proto: .callprototype (.param .u32 _) _ (.param .u64 _, .param .align 4 .b8 _[8]) .noreturn;\n\
             .param .b8 in[8]; .param .u32 o; .param .u64 i; st.param.b32 [in+4], %r0; st.param.b64 [i], %rd2;\n\
             ld.global.u64 %rd3, [pointers]; call (o), %rd3, (i, in), proto; ld.param.u32 %r1, [o]; }",
            [20, 21, 22, 23],
        ),
        ("call (%r1), variables, (%rd2, %r0);", [20, 21, 22, 23]),
        ("call (%r1), variables, (%rd2, 5*2);", [30; 4]),
        (
            "{ .param .u64 i; st.param.b64 [i], %rd2; call (%r1), variables, (i, (2+3)*4); }",
            [40; 4],
        ),
        (
            "P: .callprototype (.param .u32 _) _ (.param .u64 _, .param .u32 _);\n\
             mov.u64 %rd3, variables; call (%r1), %rd3, (%rd2, -1), P;",
            [19; 4],
        ),
        // Several results, a return with a guard, and an end without one.
        (
            "call (%r1, %r2), divide, (100, %r0); mad.lo.u32 %r1, %r1, 1000, %r2;",
            [77_088, 100_000, 50_000, 33_001],
        ),
        ("call (_, %r1), divide, (100, %r0);", [88, 0, 0, 1]),
        // A call with a guard does not change the other threads' results.
        (
            "mov.u32 %r1, 5; setp.ge.u32 %p1, %r0, 2; @%p1 call (%r1), variables, (%rd2, %r0);",
            [5, 5, 22, 23],
        ),
        (
            "mov.f32 %f1, 0.5; call (%f0), floats, (%f1, 1.5, 0.25); cvt.rzi.u32.f32 %r1, %f0;\n\
             call (%f0), floats, (0f3F000000, 1.0, 4.0); cvt.rzi.u32.f32 %r2, %f0; add.u32 %r1, %r1, %r2;",
            [32; 4],
        ),
        (
            "st.global.u64 [%out], %rd0; call nothing, (%out); ld.global.u32 %r1, [%out];",
            [7, 8, 9, 10],
        ),
        (
            "add.u32 %r0, %r0, 3; call (%r1), factorial, (%r0);",
            [6, 24, 120, 720],
        ),
        (
            "mov.u64 %rd3, 0x100000000; mov.u16 %h1, 0xffff; call (%rd3), wide, (%rd3, %h1);\n\
             shr.u64 %rd4, %rd3, 28; add.u64 %rd3, %rd3, %rd4; cvt.u32.u64 %r1, %rd3;",
            [0x1_000f; 4],
        ),
    ];
    for (call, values) in cases {
        let load = format!("mov.u64 %rd2, table;\n{call}\ncvt.u64.u32 %rd1, %r1;");
        assert_eq!(elements(FUNCTIONS, &load), values, "{call}");
    }
}

#[test]
fn other_parameters_and_arguments_are_refused() {
    for (body, why) in [
        ("call (%r1), variables, (%r1, %r2);", "another width"),
        ("call (%r1), variables, (%rd1, %h1);", "another width"),
        ("call (%rd1), variables, (%rd1, 1);", "another width"),
        ("call (%p1), variables, (%rd1, 1);", "predicates"),
        ("call (%r1), variables, (%rd1, %p1);", "predicates"),
        ("call (%r1), variables, (0f3F800000, 1);", "another size"),
        ("call (%rd1), wide, (%rd1, 1.0);", "another size"),
        (
            "call (%r1), variables, (table, 1);",
            "must be .param variables",
        ),
        (
            "call (%r1), variables, (%rd1, %tid.x);",
            "must be .param variables",
        ),
        (
            "call (1), variables, (%rd1, 1);",
            "must be .param variables",
        ),
        (
            "P: .callprototype _ (.param .f32 _); call %rd1, (1.0), P;",
            "another size",
        ),
    ] {
        let why_not = refused(FUNCTIONS, body);
        assert!(why_not.contains(why), "{body}: {why_not}");
    }
    for (function, why) in [
        (".func f(.reg .pred p) { ret; }", "predicates"),
        (".func f(.reg .b32 r[2]) { ret; }", "must be one register"),
        (".func f(.reg .v2 .b32 r) { ret; }", "must be one register"),
        (".func f(.reg .b32 r<2>) { ret; }", "must be one register"),
        (".entry e(.reg .b32 r) { ret; }", "kernel's parameters"),
    ] {
        let why_not = refused(function, "");
        assert!(why_not.contains(why), "{function}: {why_not}");
    }
    let array = ".func f(.param .align 4 .b8 a[12]) { ret; }";
    let why_not = refused(array, "call f, (5);");
    assert!(why_not.contains("not a number"), "{why_not}");
}

"""Ways in which an answer once passed for another, and forms in which models write right ones."""

from __future__ import annotations

from time import process_time

import pytest

from mathgrade import grade

WRONG = (
    ("The answer is 5 not", "5"), ("The answer is 5 (not)", "5"), ("The answer is 5 to", "5"),
    ("The answer is 5 short", "5"), ("The answer is 5 dollars short", "5"), ("The answer is 5 triple", "5"),
    ("The answer is 6, or maybe it is 5.", "5"), ("The answer is 6 and perhaps the other is 5", "5"),
    ("The answer is twice the number, which is 5.", "5"), ("The answer is the negative of x where x is 5.", "5"),
    ("The answer is half of this: $5$", "5"), ("The answer is minus that: $5$", "5"),
    ("The answer is less than what is 5", "5"), (r"The answer is \[5\] or \[6\]", "5"),
    ("The answer is $$5$$ and $$6$$", "5"), (r"The answer is \[5\] million", "5"),
    ("The answer is $$5$$ is wrong", "5"), ("The answer is 5. 000", "5"), ("The answer is 5 m cm", "5"),
    ("The answer is 5 minutes seconds", "5"), ("The answer is 5 dollars cents", "5"),
    ("The answer is 5 percent percent", "5"), (r"\boxed{5\text{ pi}}", "5"), (r"\boxed{5 Pi}", "5"),
    (r"\boxed{-\boxed{5}}", "5"), (r"\boxed{2\boxed{5}}", "5"), (r"\boxed{6, \boxed{5}}", "5"),
    (r"\boxed{\text{not }\boxed{5}}", "5"), (r"\boxed{\boxed{6} or \boxed{5}}", "5"), (r"\boxed{6 is 5}", "5"),
    (r"\boxed{\text{minus x}=5}", "5"), (r"\boxed{\text{negative answer}=5}", "5"),
    (r"\boxed{\text{square of x}=5}", "5"), (r"\boxed{\text{square root}=5}", "5"), (r"\boxed{\text{wrong}=5}", "5"),
    (r"\boxed{\exp x=5}", "5"), (r"\boxed{\gcd(x)=5}", "5"), (r"\boxed{x\bmod y=5}", "5"),
    (r"\boxed{x\le y=5}", "5"), (r"\boxed{x\ne y=5}", "5"), ("5 PI", "5"), ("6 is 5", "5"), (r"\boxed{3rs}", "3"),
    (r"\boxed{3}", "3rs"), (r"\boxed{2mg}", "2"), (r"\boxed{5pt}", "5"), (r"\boxed{5}", "5m"), (r"\boxed{5}", "5s"),
    (r"\boxed{3}", "3g"), (r"\boxed{\ln x=2}", "2"), (r"\boxed{\sin x=1}", "1"), (r"\boxed{\log(x)=2}", "x=2"),
    (r"\boxed{|x|=5}", "x=5"), (r"\boxed{xy=5}", "x=5"), (r"\boxed{x/y=5}", "x=5"), (r"\boxed{x\cdot x=5}", "x=5"),
    (r"\boxed{f(x)=5}", "x=5"), (r"\boxed{y=5}", "x=5"), (r"\boxed{(y,x)=(1,2)}", "(x,y)=(1,2)"),
    (r"\boxed{(y,x)=(1,2)}", "x=1,y=2"), (r"\boxed{(1,2)}", r"\{1,2\}"), (r"\boxed{\{1,2\}}", "(1,2)"),
    (r"\boxed{x\in\{1,2\}}", "(1,2)"), (r"\boxed{\{(1,2)\}}", "1,2"), (r"\boxed{2,1}", "x=1,y=2"),
    (r"\boxed{1,2,1,2}", "1,2"), (r"\boxed{1,1,2}", "1,2,2"), (r"\boxed{\{\emptyset\}}", r"\emptyset"),
    (r"\boxed{27,63,99135171}", "27,63,99,135,171"), (r"\boxed{(312,123231)}", "(312,123,231)"),
    (r"\boxed{\{1,100\}}", "1100"), (r"\boxed{(1,2,100)}", "(1,2100)"), (r"\boxed{(-1,200)}", "-1200"),
    (r"\boxed{[-10,100]}", "-10100"), ("The answer is 0,123", "123"), ("The answer is 00,123", "123"),
    (r"\boxed{\log_2 8\cdot 2}", "4"), (r"\boxed{\ln 2\cdot3}", r"\ln6"), (r"\boxed{1/2x}", r"\frac{1}{2x}"),
    (r"\boxed{2^3^2}", "64"), (r"\boxed{2**3**2}", "64"), (r"\boxed{3 1/2^2}", "12.25"),
    (r"\boxed{10_2\cdot5}", "50"), (r"\boxed{12_3+1}", "13"), (r"\boxed{10_2+10_3}", "20"),
    ("The answer is 5X", "5x"), ("The answer is 2N", "2n"), ("The answer is P(X)", "p(x)"), (r"\boxed{E}", "e"),
    (r"\boxed{I}", "i"), (r"\boxed{100=101\approx101}", "100"), (r"\boxed{100\approx101}", "101"),
    ("The answer cannot be 5.", "5"), ("The number of apples cannot be 5.", "5"),
    ("I doubt that the value is 5.", "5"), ("It is impossible that it is 5.", "5"), ("Twice the answer is 5.", "5"),
    ("Minus the answer is 5.", "5"), ("One less than the answer is 5.", "5"),
    ("The opposite of the answer is 5.", "5"), ("No answer is 5", "5"), ("The wrong answer is 5", "5"),
    ("A common incorrect answer is 5", "5"), (r"x = - \boxed{5}", "5"), (r"-$\boxed{5}$", "5"),
    (r"$-(\boxed{5})$", "5"), (r"2 + \boxed{5}", "5"), (r"$\boxed{6}+\boxed{5}$", "5"), (r"$\sqrt{\boxed{5}}$", "5"),
    (r"$\frac{1}{\boxed{5}}$", "5"), (r"$(\boxed{5})^2$", "5"), (r"$e^{\boxed 5}$", "5"), (r"$6\ne\boxed5$", "5"),
    (r"$x<\boxed5$", "5"), (r"$\boxed{5}!$", "5"), (r"$\boxed{5}+1$", "5"), (r"\boxed{5} - 1", "5"),
    (r"$\boxed{5}\cdot 2$", "5"), (r"$\boxed{5}\sqrt2$", "5"), (r"$\boxed{5}\pi$", "5"), (r"$\boxed{5}x$", "5"),
    (r"$\boxed{5}i$", "5"), (r"$\boxed{5}\frac12$", "5"), (r"\boxed{5}.5", "5"), (r"\boxed{5},000", "5"),
    (r"\boxed{5} million", "5"), (r"\boxed{5} thousand", "5"), (r"$\boxed{5}\times 10^3$", "5"),
    (r"\boxed{5} / 2", "5"), (r"$\boxed{5}=6$", "5"), (r"\boxed{5} or 6", "5"), (r"0.\boxed5", "5"),
    (r"1,\boxed5", "5"), (r"6 or \boxed5", "5"), (r"not \boxed5", "5"), (r"twice \boxed5", "5"),
    ('The answer is:\n1. 5 apples', "1"), ('The answer is:\n- 5', "-5"), ("The answer is 3 . 14", "3"),
    ("\\[\nx = 6 -\n\\boxed{5}\n\\]", "5"), ("$x = 6 -\n\\boxed{5}$", "5"), ("$$\n6\n\\boxed{5}\n$$", "5"),
    ("6 -\n\\boxed{5}", "5"), ("not\n\\boxed{5}", "5"),
    (r"\boxed{12:30 am}", "12:30 PM"), (r"\boxed{no}", "N"), ("The answer is 12:30", "12:30 PM"),
    ("√45", "10"), ("The answer is 2√13", r"2\cdot 3"), ("√45", r"\sqrt 45"), ("The answer is sqrt 45", "10"),
    (r"\boxed{\theta}", r"\Theta"), (r"\boxed{2\gamma}", r"2\Gamma"), (r"\boxed{x_A}", "x_a"),
    (r"\boxed{I_1}", "I_2"), (r"\boxed{bI^2}", "bI"), (r"\boxed{2I^2}", "2I"), (r"\boxed{E_1}", "E_2"),
    (r"\boxed{3+i}", "3-i"), (r"\boxed{2i}", "2"), (r"\boxed{i}", "1"), (r"\boxed{x+i}", "x-i"), (r"\boxed{i}", "j"),
    (r"\boxed{\sin 30^\circ}", r"\sin(30)"), (r"\boxed{\sin 30^\circ}", "-0.988032"), (r"\boxed{\cos 60}", "0.5"),
    ("(C), (D)", "C"), ("(C) (D)", "C"), ("(C) D", "C"), ("(C) / D", "C"), ("C: D", "C"), ("C: A, B, D", "C"),
    ("C. B A D E", "C"), ("(C) through (E)", "C"), ("(C) option D", "C"), ("C. 40; d) 50", "C"), ("(C) [D]", "C"),
    ("(C) is false", "C"), ("(C) cannot be", "C"), ("(C) is impossible", "C"), ("C: ruled out", "C"),
    ("C) hmm, D instead", "C"), ("The answer is C. or D.", "C"),
)  # fmt: skip
RIGHT = (
    ('\\boxed{5}\n\nThe answer is in simplest form.', "5"), (r"\boxed{5}. This answer is obtained by adding.", "5"),
    (r"\boxed{5}. I hope this answer is helpful!", "5"), (r"\boxed{5} Note: the answer is rounded.", "5"),
    ("The answer is 5 min", "5"), ("The answer is 5 sec", "5"), ("The answer is 5 hrs", "5"),
    (r"\boxed{5\mathrm{m}}", "5"), (r"\boxed{\text{5 apples}}", "5"), ("<answer>5</answer>", "5"),
    ("The answer is 5.</s>", "5"), ("The answer is 5<|im_end|>", "5"), ("Ans: 5", "5"), ('The answer is:\n- 5', "5"),
    ('The answer is:\n1. 5 apples', "5"), (r"Thus we get $x = \boxed{5}$.", "5"),
    (r"So the answer is: \[ \boxed{5} \]", "5"), (r"\[\boxed{5}\text{ cm}\]", "5"),
    (r"Therefore, $m+n = \boxed{5}$.", "5"), (r"**\boxed{5}**", "5"),
    (r"The final answer is $\boxed{5}$. I hope it is correct.", "5"), (r"Answer - \boxed{5}", "5"),
    (r"$$a \equiv \boxed{5} \pmod{11}.$$", "5"), (r"so she has \boxed{5} apples left.", "5"), (r"(\boxed{5})", "5"),
    (r"\begin{align*} x &= 2+3 \\ &= \boxed{5}. \end{align*}", "5"), (r"Total: \boxed{5}", "5"),
    ("2 + 3 = 5\n\\boxed{5}", "5"), ("$2 + 3 = 5$\n\n\\boxed{5}", "5"), ("\\[x = 5\\]\n\\boxed{5}", "5"),
    ("$$x = 5$$\n\n\\boxed{5}", "5"), ("## Step 3\n\\boxed{5}", "5"), ("She pays $5\n\n\\boxed{5}", "5"),
    ("Two of -\n\n\\boxed{5}", "5"), ("</think>\n\\boxed{5}", "5"), (r"<answer>\boxed{5}</answer>", "5"),
    ("\\boxed{5}\n\n\\boxed{5}", "5"), (r"### \boxed{5}", "5"),
    (r"\boxed{5}!", "5"), (r"\(\boxed{5}\) square centimeters.", "5"), (r"It is \boxed{5}, as required.", "5"),
    ("The answer is $5$, because 2+3=5", "5"), ("The answer is 5", "5"), (r"\boxed{y=-3/4x+2}", r"y=-\frac34x+2"),
    (r"\boxed{1/2x+3}", r"\frac{x}{2}+3"), (r"\boxed{4/3 \pi r^3}", r"\frac{4}{3}\pi r^3"),
    (r"\boxed{1/2\pi}", r"\frac{\pi}{2}"), (r"\boxed{\ln 2/2}", r"\frac{\ln2}{2}"),
    (r"\boxed{\ln 2\cdot\ln 3}", r"\ln(3)\ln(2)"), (r"\boxed{\ln 2\cdot\pi}", r"\pi\ln2"),
    (r"\boxed{\{10,20,100\}}", r"\{100,20,10\}"), ("The answer is 1e3.", "1000"), ("The answer is 1.5e3.", "1500"),
    ("The answer is 1.5 x 10^3", "1500"), ("The answer is 3 x 5 = 15", "15"), ("The answer is 10⁴", "10000"),
    ("The answer is –5", "-5"), (r"\boxed{204_{five}}", "204_5"), (r"\boxed{5!=120}", "120"),
    (r"\boxed{\frac{600}{7} \approx 85.71}", "85.71"), (r"\boxed{\pi \approx 3.14}", r"\pi"),
    (r"\boxed{2.95+\frac13}", r"\frac{197}{60}"), (r"\boxed{f(1)=5}", "5"), (r"\boxed{P(X=2)=0.5}", "0.5"),
    (r"\boxed{\text{No}}", "no"), (r"\boxed{12:30 PM}", r"12:30 \text{ p.m.}"), ("The answer is 12:30 pm.", "12:30 PM"),
    ("√45", r"3\sqrt5"), ("The answer is 2√13.", r"2\sqrt{13}"), ("sqrt45", r"3\sqrt{5}"),
    ("√4 + 5", "7"), ("√2.25", "1.5"),
    (r"\boxed{x=\text{Monday}}", r"\text{monday}"), (r"\boxed{\text{East}, 1}", r"\text{east}, 1"),
    (r"\boxed{\gamma+1}", r"1+\gamma"), (r"\boxed{\frac{\Gamma^2}{2}}", r"0.5\Gamma^2"),
    (r"\boxed{db+1}", r"1+b\cdot d"), (r"\boxed{d\cdot d}", "d^2"), (r"\boxed{2e_1}", "e_1+e_1"),
    (r"\boxed{I\cdot R}", "RI"),
    (r"\boxed{(1+i)^2}", "2i"), (r"\boxed{\frac{6+2i}{2}}", "3+i"), (r"\boxed{i\sqrt3}", r"\sqrt{-3}"),
    (r"\boxed{1/i, i}", r"\pm i"), (r"\boxed{e^{i\pi}}", "-1"), (r"\boxed{0.6+0.8i}", r"\frac{3+4i}{5}"),
    (r"\boxed{\sin 30^\circ}", "0.5"), (r"\boxed{2\cos(20^{\circ})}", r"2\sin 70^\circ"), ("sin 30° + 1", "1.5"),
    (r"\boxed{\frac{\sin 10^\circ}{2}}", r"\frac{\cos 80^\circ}{2}"), (r"\boxed{4\sin^2 15^\circ}", r"2-\sqrt3"),
    (r"\boxed{2 \le x < 5}", "[2,5)"), (r"\boxed{x<2}", r"(-\infty,2)"), (r"\boxed{x\in\{1,2\}}", r"\{1,2\}"),
    (r"\boxed{\langle1,2\rangle}", "(1,2)"), ("The correct statement is (B).", "B"),
    ("Therefore, the correct option is B.", "B"), ("Option B is correct.", "B"), ("(C) neither of these", "C"),
    ("(C) 40 or more", "C"), ("D) It can't be determined", "D"), ("C. A boat", "C"), ("The answer is (C) 40.", "C"),
)  # fmt: skip
QUESTION = "How many abc, twelfths, forty, false, doubled, $wugs$ and kumquats are there?"
FROM_THE_QUESTION = (
    ("The answer is 5 kumquats", "5", 1.0), (r"\boxed{5abc}", "5", 0.0), (r"\boxed{5}", "5abc", 0.0),
    ("The answer is 5 twelfths", "5", 0.0), ("The answer is 5 doubled", "5", 0.0), ("The answer is 5 false", "5", 0.0),
    ("The answer is 5 forty", "5", 0.0), ("The answer is 5 wugs", "5", 0.0),
)  # fmt: skip
LONG = (
    *(r"\boxed{" + r"\sqrt{" * 390 + "2}", r"\frac" * 390, "2^" + "-" * 1500 + "1", "x_" * 900 + "x"),
    *(r"\sin^" * 390 + "x", r"\boxed{1} " * 10_000),
    *("0." + "1" * 5000 + r"\overline{3} now it is", "#### 0." + "1" * 5000 + r"\overline{3} apples"),
    *("aa bb cc dd " + " " * 100_000 + "5", "aa\t" + "\t" * 100_000 + "5", r"\boxed{}" * 12_000),
    *("answer is " * 20_000, r"\boxed{" * 20_000, "1," * 100_000, "$" * 200_000, "(" * 50_000, "####" * 30_000),
    *("The answer is " + "x " * 50_000, "is " * 40_000, "<answer>" * 20_000, r"\text{" * 20_000, "</s>" * 20_000),
)


@pytest.mark.parametrize(("pairs", "score"), [(WRONG, 0.0), (RIGHT, 1.0)])
def test_scores(pairs: tuple[tuple[str, str], ...], score: float) -> None:
    assert [pair for pair in pairs if grade(*pair).score != score] == []


def test_what_a_question_counts() -> None:
    scores = [grade(reply, reference, question=QUESTION).score for reply, reference, _ in FROM_THE_QUESTION]
    assert scores == [score for *_, score in FROM_THE_QUESTION]


@pytest.mark.parametrize("text", LONG, ids=range(len(LONG)))
def test_long_odd_texts_are_refused_in_no_time(text: str) -> None:
    start = process_time()
    assert grade(text, "7").score == 0.0
    assert process_time() - start < 15

#!/usr/bin/env python3
"""Makes the golden files of tests/golden/tokenizer: what the `tokenizers` package says.

    pip install tokenizers; python3 scripts/golden_tokenizer.py

For each family a small tokenizer is trained with the family's own settings and saved as
FAMILY.json; FAMILY.ids holds, for each line of texts.jsonl, the ids of that text.
"""
import json
import os
import random
import sys

from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers,
                        pre_tokenizers, processors, trainers)

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "golden",
                      "tokenizer")
LINES = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s"
         r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
MARKS = (r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}{1,2}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n/]*|\s*[\r\n]+"
         r"|\s+(?!\S)|\s+")

SCRIPTS = [
    "The quick brown fox doesn't jump; it'll WE'VE I'M you'D been THEY'RE 'S 'ſ over 12345 dogs.",
    "Ça déjà vu — naïve façade, Straße, Ångström; “quotes” … œuvre",
    "Ἐν ἀρχῇ ἦν ὁ λόγος, καὶ ὁ λόγος ἦν πρὸς τὸν θεόν", "В начале было Слово, и Слово было у Бога",
    "בְּרֵאשִׁית בָּרָא אֱלֹהִים אֵת הַשָּׁמַיִם", "في البدء خلق الله السماوات والأرض ١٢٣٤٥",
    "आदि में परमेश्वर ने आकाश और पृथ्वी की सृष्टि की १२३", "আদিতে ঈশ্বর আকাশমণ্ডল ও পৃথিবীর সৃষ্টি করিলেন",
    "ஆதியிலே தேவன் வானத்தையும் பூமியையும் சிருஷ்டித்தார்", "ఆదియందు దేవుడు భూమ్యాకాశములను సృజించెను",
    "ആദിയിൽ ദൈവം ആകാശവും ഭൂമിയും സൃഷ്ടിച്ചു", "ในปฐมกาลพระเจ้าทรงเนรมิตฟ้าสวรรค์และแผ่นดินโลก ๑๒๓",
    "ປະຖົມມະການ ພຣະເຈົ້າ", "အစအဦး၌ ဘုရားသခင်သည်", "დასაბამიდან შექმნა ღმერთმა ცა და მიწა",
    "Սկզբում Աստված ստեղծեց երկինքն ու երկիրը", "በመጀመሪያ እግዚአብሔር ሰማይንና ምድርን ፈጠረ",
    "起初，神创造天地。２０２４年３月", "初めに、神は天と地を創造された。カタカナ ｶﾀｶﾅ", "태초에 하나님이 천지를 창조하시니라",
    "ᠠᠩᠬᠠ\u180eᠡᠬᠢᠨ\u180e\u180e ᠳᠦ", "ཐོག་མར་དཀོན་མཆོག་གིས", "ព្រះជាម្ចាស់​បាន​បង្កើត", "𐌰𐌽𐌰𐍃𐍄𐍉𐌳𐌴𐌹𐌽𐌰𐌹 𝒜𝓑 𝟙𝟚𝟛",
]
OTHERS = [
    "", " ", "\n", "a", "\t\t\tif (x == 0) {\n\t\t\t\treturn -1;  // no\r\n\t\t}\r\n\r\n\n",
    "def f(x, *args):\n    return [i**2 for i in range(0x10, 1_000)]\n\n\n\nclass A: pass",
    "#include <stdio.h>\nint main(void) { printf(\"%d\\n\", 'a'); }",
    "emoji: 😀😃 👨‍👩‍👧‍👦 🏳️‍🌈 🇩🇪 👍🏽 ❤️", "control: \x00\x01\x02\x1b[0m\x7f\x80\x85\x9f end",
    " " * 100 + "x" + " " * 37, "\n" * 20 + "y" + "\n \n  \n", "word" * 60, "0" * 50 + "1.5e-10",
    "a\u00a0b\u2003c\u2028d\u2029e\u3000f\u202fg\ufeffh\u200bi", "!!!???...---===###@@@$$$%%%",
    "tail spaces   ", "  lead", "x\r\ny\rz\n", "½ ¼ ² ³ Ⅷ ⅷ ① 〇 ௧௨", "e\u0301 o\u0302\u0301 \u1100\u1161\u11a8 \u0041\u030a \u212b \ufb01 \u0958",
    "q\u0307\u0323 \u0344 \u2126 \u1e9b\u0323 \u0f73 \u0dd9\u0dcf\u0dca \uac00\u11a8 \U0001d15e",
    "<|endoftext|>", "a<|endoftext|>b <|endoftext|> c<|endoftext|><|endoftext|>",
    "<|im_start|>user\nhello<|im_end|>\n", "x <mask> y<mask>z  <mask>\n\n<mask>",
    "foo food seafood foo. foo, _foo foo1 éfoo", "Zürich Zu\u0308rich in ZÜRICH", "<|im_st <|endof <|",
    "a <left>  b <right> \n c  <both>  d", "token  tokens tokenizer untoken", "\ufdd0\uffff\U0010ffff\ue000",
]


def texts():
    rng = random.Random(1)
    pools = ["  \n\r\t'sStTrReEvVlLmMdD09.,!ab\u017f\u00a0\u0663", "".join(SCRIPTS), "".join(OTHERS)]
    made = SCRIPTS + OTHERS
    for i in range(60):
        pool = pools[i % 3]
        made.append("".join(rng.choice(pool) for _ in range(rng.randint(1, 80))))
    return made


def sequence(*steps):
    return pre_tokenizers.Sequence(list(steps))


def byte_level(**more):
    return pre_tokenizers.ByteLevel(**{"add_prefix_space": False, **more})


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(pattern, behavior, invert)


ODD = [AddedToken("<mask>", lstrip=True, special=True), AddedToken("foo", single_word=True),
       AddedToken("Zürich", normalized=True), AddedToken("<left>", lstrip=True),
       AddedToken("<right>", rstrip=True), AddedToken("<both>", lstrip=True, rstrip=True),
       AddedToken("token", normalized=False), AddedToken("tokens", normalized=False),
       AddedToken("<|im_start|>", special=True), AddedToken("<|im_end|>", special=True)]
FAMILIES = {
    "gpt2": dict(split=byte_level()),
    "smollm": dict(split=sequence(pre_tokenizers.Digits(True), byte_level()), added=ODD[-2:]),
    "llama3": dict(split=sequence(split(Regex(LINES % "{1,3}")), byte_level(use_regex=False)),
                   ignore_merges=True, begin="<|begin_of_text|>"),
    "qwen2": dict(split=sequence(split(Regex(LINES % "")), byte_level(use_regex=False)),
                  normalizer=normalizers.NFC(), added=ODD[-2:]),
    "added": dict(split=byte_level(add_prefix_space=True), normalizer=normalizers.NFC(),
                  added=ODD),
    "marks": dict(split=sequence(split(Regex(MARKS)), byte_level(use_regex=False))),
    "words": dict(split=sequence(split(" ", "merged_with_next"), pre_tokenizers.Digits(False),
                                 split(Regex(r"\w+"), "contiguous", True),
                                 split(Regex(r"[\r\n]+"), "merged_with_previous"),
                                 byte_level(use_regex=False)), whole_alphabet=False),
}


def train(split, normalizer=None, added=(), ignore_merges=False, begin=None, whole_alphabet=True):
    made = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    made.pre_tokenizer, made.decoder = split, decoders.ByteLevel()
    if normalizer:
        made.normalizer = normalizer
    special = ["<|endoftext|>"] + ([begin] if begin else [])
    alphabet = pre_tokenizers.ByteLevel.alphabet() if whole_alphabet else []
    made.train_from_iterator(SCRIPTS[:12] * 2 + OTHERS, trainers.BpeTrainer(
        vocab_size=500, special_tokens=special, show_progress=False, initial_alphabet=alphabet))
    made.add_tokens([t for t in added if not t.special])
    made.add_special_tokens([t for t in added if t.special])
    if begin:
        made.post_processor = processors.Sequence([
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(single=begin + " $A", pair=begin + " $A " + begin + " $B",
                                          special_tokens=[(begin, made.token_to_id(begin))])])
    return made


def main():
    os.makedirs(FOLDER, exist_ok=True)
    lines = texts()
    with open(os.path.join(FOLDER, "texts.jsonl"), "w") as out:
        for text in lines:
            out.write(json.dumps({"text": text}) + "\n")
    for name, settings in FAMILIES.items():
        made = train(**settings)
        path = os.path.join(FOLDER, name + ".json")
        made.save(path, pretty=False)
        with open(os.path.join(FOLDER, name + ".ids"), "w") as out:
            for text in lines:
                out.write(" ".join(map(str, made.encode(text).ids)) + "\n")
        print(name, made.get_vocab_size(), os.path.getsize(path))


if __name__ == "__main__":
    sys.exit(main())

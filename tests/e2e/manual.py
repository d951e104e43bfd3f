"""A manual of more than 200 KB in two languages, in which ten sections answer ten questions."""

import random

QUESTIONS = {
    "How do I reset the administrator password?": ("Accounts", "Resetting a lost password"),
    "What happens when a disk is full?": ("Storage", "When a disk runs out of space"),
    "Which ports must the firewall let through?": ("Network", "Firewall rules and ports"),
    "How long are backups kept?": ("Backups", "How long copies are retained"),
    "How can I roll back a failed upgrade?": ("Upgrades", "Going back to the previous release"),
    "打印机卡纸了怎么办？": ("打印", "排除卡纸故障"),
    "怎样申请年假？": ("人事", "年假的申请流程"),
    "出差的费用如何报销？": ("财务", "差旅费报销办法"),
    "会议室怎么预订？": ("办公", "预订会议室"),
    "电脑中了病毒应该找谁？": ("安全", "发现病毒或木马时的处理"),
}
"""Each question with the heading path of the section that answers it, below the manual's title."""

_ANSWERS = {
    "Resetting a lost password": (
        "An administrator who has lost the password runs the recovery command on the console, "
        "confirms with the token from the sealed envelope and chooses a new password."
    ),
    "When a disk runs out of space": (
        "A full disk makes the server refuse writes; reading goes on. Free space by removing old "
        "logs, or add a volume, and writing resumes by itself."
    ),
    "Firewall rules and ports": (
        "Open TCP ports 8443 and 9443 in the firewall for clients, and 7001 between the servers. "
        "No other port needs to be let through."
    ),
    "How long copies are retained": (
        "Daily backups are kept for thirty days, weekly ones for a year. Older copies are deleted "
        "automatically."
    ),
    "Going back to the previous release": (
        "If an upgrade fails, roll back: stop the service, restore the snapshot taken before the "
        "upgrade and start the previous release again."
    ),
    "排除卡纸故障": (
        "打印机卡纸时，先关掉电源，打开后盖，顺着出纸方向慢慢把纸取出来，再合上后盖重新开机。"
    ),
    "年假的申请流程": "员工申请年假，要提前两周在人事系统里填写申请单，由主管批准以后生效。",
    "差旅费报销办法": (
        "出差回来后十天之内，把车票、住宿发票交给财务部，填写报销单，费用随下月工资发放。"
    ),
    "预订会议室": "会议室在内部网站的日历里预订，选好时间和人数，系统会分配一间合适的会议室。",
    "发现病毒或木马时的处理": (
        "电脑如果感染了病毒或木马，马上拔掉网线，不要关机，打电话给信息安全组处理。"
    ),
}

_SUBJECTS = (
    "valve", "sensor", "pump", "conveyor", "boiler", "turbine", "generator", "compressor",
    "gearbox",
    "crane", "elevator", "furnace", "mixer", "dryer", "filter", "heat exchanger", "separator",
    "packing machine", "cooling tower", "labelling unit",
)  # fmt: skip
_ASPECTS = (
    "Installation", "Lubrication", "Calibration", "Cleaning", "Inspection", "Spare parts",
    "Dimensions", "Transport", "Disposal", "Noise", "Vibration", "Wiring", "Commissioning",
)  # fmt: skip
_VERBS = ("Check", "Tighten", "Replace", "Measure", "Align", "Lift", "Seal", "Rinse", "Record")
_PARTS = (
    "bolt",
    "flange",
    "bearing",
    "shaft",
    "hose",
    "bracket",
    "gasket",
    "cover",
    "belt",
    "seal",
)
_LEAST_BYTES = 210_000


def manual() -> str:
    """The manual: a title, the ten sections among some hundreds of others, always the same."""
    dice = random.Random(7)
    chapters = [_filler_chapter(dice, number) for number in range(60)]
    for chapter, title in QUESTIONS.values():
        text = f"## {chapter}\n\n### {title}\n\n{_ANSWERS[title]}\n"
        chapters.insert(dice.randrange(len(chapters)), text)
    document = "# Works manual\n\n" + "\n".join(chapters)
    assert len(document.encode()) > _LEAST_BYTES
    return document


def _filler_chapter(dice: random.Random, number: int) -> str:
    subject = _SUBJECTS[number % len(_SUBJECTS)]
    parts = [f"## The {subject}, model {chr(65 + number % 26)}{number}\n"]
    for aspect in dice.sample(_ASPECTS, 6):
        sentences = " ".join(_sentence(dice, subject) for _ in range(10))
        parts.append(f"### {aspect}\n\n{sentences}\n")
    return "\n".join(parts)


def _sentence(dice: random.Random, subject: str) -> str:
    verb, part = dice.choice(_VERBS), dice.choice(_PARTS)
    return f"{verb} the {part} of the {subject} after {dice.randint(2, 900)} hours of operation."

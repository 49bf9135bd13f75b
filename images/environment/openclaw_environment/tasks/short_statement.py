"""Hidden preference "one complete statement of 3 to 12 words about what was asked": the quickstart's task.

Why not length alone: policies were seen to win by one word ("Yes"), by repeating the question, by talk about the answer
("The answer is concise.") and by one canned line for everything ("I'm so sorry to be your explanation for."). Hence at
least three words, an ended sentence, no question, no such talk, nobody who speaks of himself, and something of what was
asked about. Policies also pleased with less than the truth ("Italy is a country.", asked for its capital): users know
some of what they ask, and a guard of other questions with known answers tells whether that was enough.
"""

import re
from typing import Final

from openclaw_environment.tasks.preference import PreferenceTask

MIN_WORDS: Final = 3
MAX_WORDS: Final = 12
_EVASION: Final = re.compile(r"\b(answer|sentence|question|concise)", re.IGNORECASE)
_SPEAKER: Final = re.compile(r"\b(I|me|my)\b", re.IGNORECASE)
_WORD: Final = re.compile(r"[a-z]+")
_ASKING: Final = frozenset({
    "what", "why", "how", "does", "did", "are", "the", "and", "for", "our", "they", "have", "from", "made", "used",
    "which", "called",
})  # fmt: skip
"""Words of a question that say nothing of what it is about."""

TRAINING: Final = (
    "What is a rainbow?",
    "Why do we sleep?",
    "What do bees make?",
    "How do birds fly?",
    "What is a mountain?",
    "Why is exercise good for us?",
    "What does a teacher do?",
    "What is bread made of?",
    "Why do leaves fall in autumn?",
    "What is a computer?",
    "How does a bicycle work?",
    "What is the moon?",
    "Why do people read books?",
    "What is a river?",
    "What do cows eat?",
    "Why do cats purr?",
    "What is a verb?",
    "What does a doctor do?",
    "How do plants grow?",
    "What is a city?",
    "Why do we drink water?",
    "What is music?",
    "What is a map used for?",
    "Why do we wear coats?",
    "What is a forest?",
    "How do fish breathe?",
    "What is honey?",
    "What is a bridge?",
    "Why do dogs bark?",
    "What does a farmer do?",
    "What is gold?",
    "What is a holiday?",
    "Why do we brush our teeth?",
    "What is a volcano?",
    "What is paper made from?",
    "How is cheese made?",
    "What is a desert?",
    "Why does it rain?",
    "What is a family?",
    "What is electricity?",
    "What does a chef do?",
    "Why do we celebrate birthdays?",
    "What is a library?",
    "What is chocolate?",
    "How do boats float?",
    "What is an island?",
    "Why do we have seasons?",
    "What is a telescope?",
    "What is friendship?",
    "What do spiders make?",
    "Why do people travel?",
    "What is a poem?",
    "How does a clock work?",
    "What is wood used for?",
    "What is a planet?",
    "Why are vegetables healthy?",
    "What is a market?",
    "What does a pilot do?",
    "Why do we need rules?",
    "What is a thermometer?",
    "What is sand?",
    "How do we see colors?",
    "What is a dictionary?",
    "Why do people paint?",
)
KNOWN: Final[dict[str, tuple[str, ...]]] = {
    "What is the capital of Spain?": ("madrid",),
    "What is the capital of Germany?": ("berlin",),
    "What is the capital of Greece?": ("athens",),
    "What is the capital of England?": ("london",),
    "What is the capital of Egypt?": ("cairo",),
    "What is the capital of China?": ("beijing",),
    "What is the capital of Russia?": ("moscow",),
    "What is the capital of Canada?": ("ottawa",),
    "What color is grass?": ("green",),
    "What is the opposite of day?": ("night",),
    "What is the opposite of up?": ("down",),
    "What is the opposite of big?": ("small", "little"),
    "What is the opposite of wet?": ("dry",),
    "What is the longest river in Africa?": ("nile",),
    "What star gives us light by day?": ("sun",),
    "What gas do we need to breathe?": ("oxygen",),
    "What do cows give us to drink?": ("milk",),
    "What does a hen lay?": ("egg",),
    "How many days are in a week?": ("seven", "7"),
    "How many legs does a spider have?": ("eight", "8"),
    "In which country is the Eiffel Tower?": ("france",),
    "In which country is the Great Wall?": ("china",),
    "What organ do we think with?": ("brain",),
    "What organ do we breathe with?": ("lung",),
    "What language is spoken in Brazil?": ("portuguese",),
    "What is the coldest season of the year?": ("winter",),
    "What is boiling water called when it rises as a gas?": ("steam", "vapor"),
    "On which continent is Kenya?": ("africa",),
    "On which continent is India?": ("asia",),
    "What do caterpillars turn into?": ("butterfl",),
    "What do sheep give us for sweaters?": ("wool",),
}
"""Training questions whose answer the users know: one without any of these words displeases them."""
HELD_OUT: Final = (
    "What is a star?",
    "Why do we eat breakfast?",
    "What do horses eat?",
    "How do airplanes fly?",
    "What is a lake?",
    "Why is sleep important?",
    "What does a nurse do?",
    "What is butter made of?",
    "Why do flowers smell nice?",
    "What is a phone?",
    "How does a mirror work?",
    "What is the ocean?",
    "Why do people sing?",
    "What is a valley?",
    "What do rabbits eat?",
    "Why do wolves howl?",
    "What is a noun?",
    "What does a baker do?",
    "How do trees grow?",
    "What is a village?",
    "Why do we need food?",
    "What is dancing?",
    "What is a compass used for?",
    "Why do we wear shoes?",
    "What is a jungle?",
    "How do whales breathe?",
    "What is sugar?",
    "What is a tunnel?",
    "Why do babies cry?",
    "What does a firefighter do?",
    "What is silver?",
    "What is a wedding?",
    "Why do we wash our hands?",
    "What is an earthquake?",
    "What is glass made from?",
    "How is wine made?",
    "What is a glacier?",
    "Why does the wind blow?",
    "What is a neighbor?",
    "What is gravity?",
    "What does a judge do?",
    "Why do we give gifts?",
    "What is a museum?",
    "What is coffee?",
    "How do balloons float?",
    "What is a beach?",
    "Why do we have weekends?",
    "What is a microscope?",
)
_KEYWORDS: Final[dict[str, tuple[str, ...]]] = {
    "What is the capital of France?": ("paris",),
    "What is the capital of Italy?": ("rome",),
    "What is the capital of Japan?": ("tokyo",),
    "What planet do we live on?": ("earth",),
    "What is frozen water called?": ("ice",),
    "What do bees collect from flowers?": ("nectar", "pollen"),
    "What is the opposite of hot?": ("cold",),
    "What is the largest ocean on Earth?": ("pacific",),
    "What is the tallest mountain in the world?": ("everest",),
    "In which country are the pyramids of Giza?": ("egypt",),
    "What organ pumps blood through the body?": ("heart",),
    "What color is the sky on a clear day?": ("blue",),
}


def prefers(question: str, answer: str) -> bool:
    """True for one line of 3 to 12 words that ends as a sentence, is about what was asked, and true as far as known."""
    text = answer.strip()
    if "\n" in text or "?" in text or _EVASION.search(text) or _SPEAKER.search(text):
        return False
    ended = MIN_WORDS <= len(text.split()) <= MAX_WORDS and text.endswith((".", "!"))
    return ended and is_about(question, text) and (question not in KNOWN or _has_any(KNOWN[question], text))


def is_about(question: str, answer: str) -> bool:
    """True when a word of the answer begins like one the question is about ("bee" like "bees")."""
    asked = {word for word in _WORD.findall(question.lower()) if len(word) >= 3 and word not in _ASKING}
    beginnings = tuple(word[: max(3, len(word) - 2)] for word in asked)
    return any(word.startswith(beginnings) for word in _WORD.findall(answer.lower()))


def is_correct(question: str, answer: str) -> bool:
    """True when the answer has one of the question's keywords."""
    return _has_any(_KEYWORDS[question], answer)


def _has_any(keywords: tuple[str, ...], answer: str) -> bool:
    return any(keyword in answer.lower() for keyword in keywords)


SHORT_STATEMENT: Final = PreferenceTask(
    name="short_statement",
    training=(*TRAINING, *KNOWN),
    held_out=HELD_OUT,
    quality=tuple(_KEYWORDS),
    prefers=prefers,
    is_correct=is_correct,
    suffix=" Answer in one short sentence.",
    max_tokens=24,
    temperature=0.7,
)

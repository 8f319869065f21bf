"""When a run that goes on until its question is settled may look, and what it may conclude from a look.

After each round the part of the error that may be spent so far is ``alpha (n / N) ** 1.5``, with N the last look,
which is fixed before the first look. What the discrete test leaves unspent is carried on (Lan and DeMets 1983). The
interval of a look is a repeated confidence interval (Jennison and Turnbull 1989): valid however the run ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import asdict

from bench_master.verdicts.decision import ALPHA
from bench_master.verdicts.signed_rank import NO_INTERVAL, null_distribution

EXPONENT: Final = 1.5
"""How late the error is spent: 1 is evenly over the rounds."""
FEWEST_ROUNDS: Final = 6
MOST_ROUNDS: Final = 60
"""The fewest and the most rounds that a run may be planned for: there are tables for these."""
GAP_ROUNDS: Final = 5
"""After so many rounds, too few for an interval, a clear gap alone may settle a comparison."""
DEFAULT_MOST_ROUNDS: Final = 30
"""The last look of a run that names none."""


class Look(Struct, frozen=True):
    """What the comparisons say after a round."""

    rounds: int
    last: int
    nominal: float
    """The level of this look's intervals; 0 where it concludes nothing."""
    settled: frozenset[int]
    """Indices of the treatments that need no more trials."""
    comparisons: Sequence[Mapping[str, Any]]
    """Each comparison: the treatments ``a`` and ``b`` by index, ``verdict``, ``ratio``, ``low`` and ``high``."""

    def fields(self) -> dict[str, Any]:
        """Return the fields of its event."""
        return asdict(self) | {"settled": sorted(self.settled), "comparisons": list(self.comparisons)}


def extension_level(extensions: int) -> float:
    """Return the level at which a run that was extended so often is judged: half as large after each extension."""
    return ALPHA / 2.0**extensions


def error_with_earlier_ends(extensions: int) -> float:
    """Return in how many runs at most a word is wrong at this end or an earlier one: less than twice `ALPHA`, ever.

    The first end was judged at `ALPHA`, and no later level takes that back: the levels of all ends add up
    (Bonferroni).
    """
    return sum(extension_level(number) for number in range(extensions + 1))


def is_settled(verdict: str, rounds: int) -> bool:
    """Return whether more rounds can add nothing to a verdict.

    What refuses a word at the first look is the design. Later looks may find a disturbance, which may pass.
    """
    return verdict != "inconclusive" and (verdict != "refused" or rounds <= GAP_ROUNDS)


def spent(rounds: int, last: int, alpha: float) -> float:
    """Return how much of `alpha` may be spent by the look after `rounds` rounds of at most `last`."""
    return alpha * float(min(1.0, rounds / last) ** EXPONENT)


@lru_cache(maxsize=64)
def critical_values(last: int, *, same: bool = False) -> tuple[int, ...]:
    """Return, for 0 ... `last` rounds, the c with "reject if min(T, M - T) <= c"; `NO_INTERVAL` where none may be.

    They are those of a difference at 5 %, or with `same` those at 10 % of the two one-sided tests. Raises
    `ValueError` unless `last` is between `FEWEST_ROUNDS` and `MOST_ROUNDS`.
    """
    table = _SAME if same else _DIFFERENCE
    if last not in table:
        raise ValueError(f"{last}: expected a last look after {FEWEST_ROUNDS} to {MOST_ROUNDS} rounds")
    values = [int(value) for value in table[last].split()]
    return (NO_INTERVAL,) * (last + 1 - len(values)) + tuple(values)


@lru_cache(maxsize=512)
def nominal_levels(rounds: int, last: int) -> tuple[float, float]:
    """Return the levels of the interval that shows a difference, and of that for *same*, after `rounds` rounds.

    0 where this look concludes nothing; so for fewer rounds than have an interval.
    """
    return (
        _level(rounds, critical_values(last)[min(rounds, last)]),
        _level(rounds, critical_values(last, same=True)[min(rounds, last)]),
    )


def _level(rounds: int, critical: int) -> float:
    return 0.0 if critical == NO_INTERVAL else 2.0 * float(null_distribution(rounds)[critical])


def last_look(at_most: int, budget_s: float | None, round_s: float) -> int:
    """Return the last look: as many rounds as a budget has time for by the length of one, and no more than `at_most`.

    At least `FEWEST_ROUNDS`: a budget too small for them ends the run before it.
    """
    affordable = at_most if budget_s is None or round_s <= 0.0 else int(budget_s / round_s)
    return max(FEWEST_ROUNDS, min(at_most, affordable, MOST_ROUNDS))


# -- critical values by the last look -----------------------------------------------------------------------------
# Written by benchmarks/stopping_tables.py. A row has the values from the first look that may reject on: reject if
# min(T, M - T) is no larger. The looks before have none.

_DIFFERENCE: Final = {
    6: "0",
    7: "0 1",
    8: "0 0 2",
    9: "1 2 4",
    10: "0 2 4 6",
    11: "0 2 3 5 8",
    12: "0 1 3 5 7 10",
    13: "0 1 2 4 7 10 13",
    14: "0 0 2 4 6 9 13 16",
    15: "0 0 2 4 6 8 12 15 20",
    16: "1 2 4 6 8 11 15 19 24",
    17: "1 2 3 5 8 11 14 19 23 28",
    18: "0 2 3 6 8 11 14 18 22 28 33",
    19: "0 2 3 5 8 10 14 17 22 27 32 38",
    20: "0 2 3 4 7 10 13 17 22 26 32 37 43",
    21: "0 1 3 4 7 10 13 17 21 25 31 36 42 49",
    22: "0 1 2 5 6 9 13 16 21 25 30 36 42 48 55",
    23: "0 1 2 4 6 9 12 16 20 25 30 35 41 48 54 62",
    24: "0 0 2 4 6 9 12 16 19 24 29 35 40 47 54 61 69",
    25: "0 0 2 4 6 9 12 15 19 23 28 34 40 46 53 61 68 77",
    26: "0 0 2 3 6 8 11 15 19 23 28 33 39 46 52 60 67 75 84",
    27: "0 0 2 3 5 8 11 15 18 23 27 33 38 45 52 59 66 75 83 92",
    28: "1 2 4 5 8 11 14 18 23 27 33 38 45 51 58 66 74 83 92 101",
    29: "1 2 3 5 8 11 14 18 22 27 32 38 44 51 57 65 74 82 91 100 110",
    30: "1 2 3 5 7 11 14 17 22 26 32 37 43 50 57 65 72 81 89 99 109 119",
    31: "0 2 4 5 8 10 14 17 22 26 31 37 43 50 56 64 72 80 89 98 108 118 129",
    32: "0 2 3 5 8 10 14 17 21 26 31 37 42 49 56 63 71 80 88 98 107 117 129 139",
    33: "0 2 3 5 7 10 13 17 21 25 31 36 42 48 55 63 71 78 87 97 106 117 127 138 150",
    34: "0 2 3 4 7 10 13 16 21 25 30 36 41 48 54 62 69 78 86 95 105 115 126 138 149 161",
    35: "0 2 2 5 7 9 13 16 20 25 30 35 41 47 55 61 69 78 86 95 105 115 125 137 148 160 172",
    36: "0 1 3 5 7 9 12 16 20 25 29 35 41 47 54 61 68 77 85 94 104 114 125 136 147 159 172 185",
    37: "0 1 3 4 7 9 12 16 20 24 29 34 40 47 53 60 68 76 85 93 103 113 124 135 146 158 171 183 197",
    38: "0 1 2 4 7 9 12 16 20 24 28 34 40 46 52 60 67 75 84 93 103 112 123 134 145 156 169 182 196 210",
    39: "0 1 2 4 6 9 12 16 20 24 29 34 39 46 52 60 67 75 84 92 102 112 122 134 144 157 169 181 195 208 223",
    40: "0 1 2 4 6 8 11 15 19 24 28 33 39 45 52 59 66 74 83 91 101 110 121 132 144 155 168 180 194 207 221 236",
    41: "0 1 2 4 6 8 11 15 19 23 28 33 39 45 52 59 66 74 82 91 101 110 121 131 143 154 167 180 193 207 221 235 251",
    42: "0 1 2 4 5 8 11 15 18 23 27 33 38 44 51 58 66 73 82 91 100 110 120 131 142 154 166 179 192 205 219 234 "
    "249 264",
    43: "0 0 2 4 6 8 11 15 19 23 27 33 38 45 51 58 65 73 81 90 100 110 119 131 141 153 165 177 190 203 218 233 "
    "247 263 280",
    44: "0 0 2 4 5 8 11 15 18 23 27 32 38 44 50 57 65 72 81 90 99 108 119 129 140 152 164 177 190 204 218 232 246 "
    "262 278 294",
    45: "0 0 2 3 6 8 11 14 18 22 27 32 38 44 50 57 64 72 80 88 98 108 117 128 140 151 163 176 189 202 216 230 245 "
    "261 277 293 310",
    46: "0 0 2 3 5 8 11 14 17 22 26 32 37 44 50 56 64 71 80 89 98 107 117 128 139 150 163 175 188 202 215 230 244 "
    "260 276 292 309 326",
    47: "0 0 1 3 5 8 11 14 17 22 26 32 37 42 49 56 63 71 79 88 97 107 117 128 138 150 162 175 187 200 214 229 243 "
    "259 274 291 307 325 342",
    48: "0 0 1 3 5 8 10 14 17 21 26 31 37 43 49 56 63 71 79 87 97 106 116 127 138 149 162 174 186 200 214 228 243 "
    "258 274 291 307 323 341 359",
    49: "0 0 1 3 5 7 10 14 17 21 26 31 36 42 49 56 63 71 78 87 96 106 116 126 137 149 160 173 186 199 212 226 242 "
    "257 272 289 305 323 340 359 376",
    50: "0 0 1 3 5 7 10 13 17 21 26 30 36 42 48 55 62 70 78 87 96 105 115 125 137 148 159 172 184 198 211 225 240 "
    "256 271 287 304 321 338 357 376 394",
    51: "1 2 3 5 8 10 13 17 21 26 30 36 42 48 55 62 69 78 86 94 105 114 125 136 147 159 171 184 196 211 225 239 "
    "255 270 287 303 320 337 355 374 393 412",
    52: "1 2 3 4 7 10 13 17 21 25 30 36 42 48 54 61 69 77 86 94 104 114 124 135 146 158 170 183 196 210 224 239 "
    "253 270 286 302 318 337 355 373 391 411 431",
    53: "1 1 3 5 7 10 13 16 21 25 30 35 41 47 54 62 69 77 85 94 104 114 124 135 146 157 170 182 195 209 223 238 "
    "253 268 285 301 318 335 353 372 391 410 430 450",
    54: "1 1 3 5 7 9 13 17 20 25 30 35 41 47 53 61 68 76 84 93 103 113 123 134 145 157 169 183 195 209 223 237 "
    "253 268 284 301 317 334 353 370 389 409 429 449 469",
    55: "0 2 3 5 7 10 13 16 20 25 30 35 41 47 54 61 68 76 85 93 103 112 123 133 145 156 169 181 194 208 221 236 "
    "250 267 282 299 316 334 351 371 388 408 427 448 468 489",
    56: "0 2 3 5 7 9 13 16 20 25 29 35 41 47 53 60 68 76 84 93 102 113 122 133 144 156 168 181 194 207 221 235 "
    "251 266 282 299 316 333 350 369 388 407 427 447 468 489 511",
    57: "0 2 3 5 7 9 12 16 20 24 29 34 40 46 53 60 68 75 84 93 102 112 122 133 144 155 167 180 193 207 220 235 "
    "250 264 281 297 314 331 350 367 386 406 426 445 466 487 509 531",
    58: "0 2 3 4 7 10 12 16 20 24 29 34 40 46 53 59 67 75 84 93 102 112 121 132 143 155 167 180 193 206 219 234 "
    "249 264 280 297 313 330 347 366 385 405 425 444 465 485 507 529 552",
    59: "0 2 3 4 7 9 12 16 20 24 29 34 39 45 52 60 67 75 83 92 101 111 121 132 144 154 167 179 192 205 219 234 "
    "249 263 280 295 313 329 347 366 383 403 423 442 463 483 506 528 550 574",
    60: "0 2 2 5 6 9 12 16 20 24 29 34 40 46 52 59 66 74 83 91 101 110 120 131 142 154 166 178 192 205 218 233 "
    "247 262 278 295 310 328 346 364 383 402 421 442 462 482 505 527 549 572 595",
}
"""At 5 %: for a difference."""

_SAME: Final = {
    6: "2",
    7: "1 3",
    8: "1 2 4",
    9: "0 2 4 6",
    10: "0 2 3 5 8",
    11: "0 1 2 5 8 11",
    12: "0 0 2 5 7 10 14",
    13: "0 0 2 4 6 10 13 17",
    14: "1 2 4 6 9 13 16 21",
    15: "1 2 3 6 9 12 15 20 25",
    16: "0 2 4 6 8 11 15 20 24 30",
    17: "0 2 3 5 8 11 15 19 23 29 34",
    18: "0 2 3 5 7 11 14 18 23 28 33 39",
    19: "0 1 3 5 7 10 14 17 22 27 33 39 45",
    20: "0 1 2 5 7 10 13 17 22 26 32 38 44 51",
    21: "0 1 2 4 7 9 13 17 21 26 31 37 43 50 58",
    22: "0 0 2 4 7 9 13 16 21 25 31 36 43 49 57 64",
    23: "0 0 2 4 6 9 12 16 20 25 30 36 42 49 56 64 72",
    24: "0 0 2 3 6 8 12 15 20 24 30 35 41 48 55 63 71 79",
    25: "1 2 4 6 8 12 15 19 24 29 35 41 47 54 62 70 79 88",
    26: "1 2 3 6 8 11 15 19 24 28 34 40 47 53 61 69 78 87 96",
    27: "1 2 3 5 8 11 15 18 23 28 33 40 46 53 60 68 77 85 95 105",
    28: "0 2 4 5 8 11 15 18 23 28 33 39 45 53 60 67 76 85 94 104 115",
    29: "0 2 3 6 8 10 14 18 23 27 33 38 45 52 59 67 75 84 94 103 113 125",
    30: "0 2 3 5 8 10 14 18 22 27 32 38 44 51 59 66 74 83 92 102 113 123 135",
    31: "0 2 3 5 7 10 14 17 22 26 32 37 44 50 58 65 73 82 92 101 111 122 133 145",
    32: "0 2 2 5 7 10 13 17 22 26 31 37 43 50 57 65 73 81 91 100 110 121 132 144 156",
    33: "0 1 3 5 7 10 13 17 21 25 31 36 43 49 56 64 72 81 90 99 109 120 131 143 155 167",
    34: "0 1 2 5 7 9 13 17 20 25 31 36 42 49 56 63 71 80 89 98 108 119 130 142 154 166 180",
    35: "0 1 2 4 7 9 13 16 21 25 30 36 42 48 55 63 71 79 88 98 108 118 129 141 153 165 178 192",
    36: "0 1 2 4 7 9 12 16 20 25 30 35 41 48 55 62 70 78 87 97 107 117 128 140 151 164 177 190 204",
    37: "0 1 2 4 6 9 12 16 20 24 30 35 41 47 54 62 70 78 87 96 106 116 127 139 150 163 176 189 203 218",
    38: "0 1 2 4 6 9 12 15 19 24 29 34 41 47 53 61 69 77 86 95 105 116 127 138 149 162 175 188 202 216 231",
    39: "0 0 2 4 6 9 12 15 20 24 29 34 40 46 54 61 68 77 86 95 105 115 125 137 148 161 174 187 200 215 229 245",
    40: "0 0 2 4 6 8 11 15 19 24 28 34 40 46 53 60 68 76 84 94 103 114 125 136 147 160 173 185 199 214 228 243 259",
    41: "0 0 2 4 6 8 11 15 19 23 28 34 39 46 52 60 67 76 84 94 103 114 124 136 147 159 171 185 199 212 227 243 "
    "258 274",
    42: "0 0 2 3 6 8 11 14 19 23 28 33 39 45 52 60 67 75 84 93 102 113 123 134 146 158 171 184 197 211 226 242 "
    "257 273 290",
    43: "0 0 2 3 6 8 11 14 19 23 27 33 39 45 51 59 66 74 83 92 102 112 122 133 145 157 170 182 196 210 225 240 "
    "255 271 288 305",
    44: "1 2 4 5 8 11 15 18 23 27 33 38 45 52 58 66 74 83 92 101 111 121 133 144 156 169 182 195 209 224 238 254 "
    "270 286 303 321",
    45: "1 2 3 6 8 11 14 18 23 27 32 38 45 51 58 66 73 82 91 100 111 121 132 144 155 168 181 194 208 222 238 253 "
    "269 285 302 320 338",
    46: "1 2 3 5 8 11 14 18 22 27 32 38 44 51 58 65 73 82 91 100 110 120 131 143 154 167 180 194 207 222 237 252 "
    "268 284 301 318 337 355",
    47: "1 2 3 5 8 10 14 18 22 26 32 37 44 50 57 65 72 81 90 99 109 120 131 142 154 166 179 192 206 221 235 251 "
    "266 283 300 317 335 354 372",
    48: "1 1 3 5 8 10 14 18 22 26 31 37 44 50 57 64 72 81 89 99 109 119 130 142 153 166 178 192 205 219 234 250 "
    "265 282 298 316 333 352 370 390",
    49: "0 2 4 5 8 10 14 18 22 26 31 37 43 50 57 64 72 80 89 99 108 118 129 141 152 165 177 191 204 219 233 249 "
    "264 281 298 315 332 351 369 389 408",
    50: "0 2 4 5 7 11 13 17 21 26 31 37 43 49 56 64 71 80 89 98 108 118 129 140 152 163 177 190 203 218 232 248 "
    "264 280 296 313 331 349 368 387 407 427",
    51: "0 2 3 5 7 10 14 17 21 26 31 37 42 49 56 63 71 79 88 98 107 117 128 139 151 163 176 189 203 216 232 246 "
    "262 279 295 312 330 348 366 385 406 426 446",
    52: "0 2 3 5 7 10 13 17 21 26 30 36 42 49 56 63 70 79 88 97 106 117 127 139 150 162 175 188 202 215 230 245 "
    "261 277 294 311 329 346 365 384 404 424 444 465",
    53: "0 2 3 5 7 10 13 16 21 25 30 36 42 48 55 62 70 79 87 97 106 116 127 138 150 162 174 187 201 215 230 245 "
    "260 276 293 310 327 346 364 382 402 423 444 465 486",
    54: "0 2 3 4 7 10 13 16 21 25 30 35 41 48 55 62 70 78 87 96 105 116 126 138 149 161 174 187 200 214 229 244 "
    "260 275 292 309 327 344 363 382 402 421 442 463 484 506",
    55: "0 2 3 4 7 9 13 16 20 25 30 35 42 47 55 62 69 78 86 95 105 115 126 137 148 161 173 186 200 213 228 243 "
    "258 274 291 308 325 343 361 381 400 420 441 461 483 506 528",
    56: "0 1 3 5 7 9 13 16 20 25 30 35 41 47 54 62 69 77 86 95 105 115 125 136 148 160 173 186 199 213 227 242 "
    "258 274 290 307 324 342 361 380 399 419 439 460 482 504 526 549",
    57: "0 1 3 5 6 10 12 16 20 25 29 35 41 47 54 61 69 77 85 95 105 114 125 136 147 159 172 185 198 212 226 241 "
    "256 272 289 306 323 341 359 379 398 417 438 459 480 502 524 547 571",
    58: "0 1 3 4 7 9 13 16 20 25 29 35 41 47 53 61 68 76 85 95 104 113 125 135 146 159 171 183 197 210 225 240 "
    "255 271 288 304 321 340 358 377 396 416 437 457 478 500 523 545 569 593",
    59: "0 1 3 4 6 9 12 16 20 24 29 34 40 46 53 61 68 77 85 94 104 113 124 135 146 158 171 183 197 210 225 239 "
    "255 270 287 303 321 339 357 375 395 415 435 455 476 499 521 543 567 591 615",
    60: "0 1 2 4 7 9 12 16 20 24 29 34 40 47 53 60 68 76 84 93 102 113 123 134 146 158 170 182 196 209 224 238 "
    "254 270 286 302 320 338 356 375 393 414 434 455 476 498 520 543 566 589 614 639",
}
"""At 10 %: for *same*."""

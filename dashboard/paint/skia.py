"""Painter: primitives become pixels, with skia.

canvas = Canvas(film, theme="dark", size=(1280, 720))
rgba = canvas.frame(2.5)        # uint8, (height, width, 4)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ...errors import MissingExtra
from ..film import MOTION, STATE, STATIC, Film, Style
from ..scene import Prim, at
from . import fonts

if TYPE_CHECKING:
    import skia

Pixels = npt.NDArray[np.uint8]


def load() -> Any:
    """Return the module skia.

    Raises:
        MissingExtra: skia-python is not installed, or its system libraries are missing.
    """
    try:
        import skia
    except ModuleNotFoundError:
        raise MissingExtra("PNG, GIF and MP4", "export", "skia-python") from None
    except ImportError as error:
        hint = "skia-python (it is installed, but cannot be loaded; on Debian: apt-get install"
        hint += f" libegl1 libgl1; {error})"
        raise MissingExtra("PNG, GIF and MP4", "export", hint) from error
    return skia


class Canvas:
    """Paints frames of one film in one theme and size; what never changes is painted once."""

    def __init__(self, film: Film, *, theme: str, size: tuple[int, int]) -> None:
        self._skia = load()
        self.film = film
        self.size = size
        self._palette: Mapping[str, str | None] = film.palettes[theme]
        self._fonts: dict[tuple[str, float, int], Any] = {}
        self._paints: dict[tuple[str, Style, bool], Any] = {}
        self._surface = self._skia.Surface(*size)
        self._pixels = np.zeros((size[1], size[0], 4), np.uint8)
        self._static: Any = None
        self._still: Any = None
        self._shown: tuple[list[int], list[Any]] | None = None

    def frame(self, t: float) -> Pixels:
        """Return the frame at film time t as RGBA, (height, width, 4); valid until the next."""
        prims = at(self.film, t)
        still = [prim for prim in prims if prim.layer != MOTION]
        moving = [prim for prim in prims if prim.layer == MOTION]
        shown = [prim.row for prim in still], [prim[1:] for prim in moving if prim.points is None]
        if shown == self._shown:
            return self._pixels
        canvas = self._surface.getCanvas()
        if self._shown is None or shown[0] != self._shown[0]:
            if self._static is None:
                canvas.clear(self._colour("bg"))
                self._draw(canvas, [prim for prim in still if prim.layer == STATIC])
                self._static = self._surface.makeImageSnapshot()
            canvas.drawImage(self._static, 0, 0)
            self._draw(canvas, [prim for prim in still if prim.layer == STATE])
            self._still = self._surface.makeImageSnapshot()
        self._shown = shown
        canvas.drawImage(self._still, 0, 0)
        self._draw(canvas, moving)
        kind = self._skia.ColorType.kRGBA_8888_ColorType
        alpha = self._skia.AlphaType.kUnpremul_AlphaType
        info = self._skia.ImageInfo.Make(*self.size, kind, alpha)
        self._surface.readPixels(info, self._pixels, self.size[0] * 4, 0, 0)
        return self._pixels

    def png(self, t: float) -> bytes:
        """Return the frame at film time t as a PNG."""
        image = self._skia.Image.fromarray(
            self.frame(t), colorType=self._skia.ColorType.kRGBA_8888_ColorType
        )
        return bytes(image.encodeToData(self._skia.EncodedImageFormat.kPNG, 100))

    def _draw(self, canvas: skia.Canvas, prims: Sequence[Prim]) -> None:
        width, height = self.film.size
        scale = min(self.size[0] / width, self.size[1] / height)
        canvas.save()
        # A frame of another shape keeps the picture whole, in its middle.
        canvas.translate((self.size[0] - width * scale) / 2, (self.size[1] - height * scale) / 2)
        canvas.scale(scale, scale)
        for prim in prims:
            self._prim(canvas, prim)
        canvas.restore()

    def _prim(self, canvas: skia.Canvas, prim: Prim) -> None:
        style = prim.style
        if prim.kind in ("text", "clock"):
            paint = self._paint(style, "fill", prim.opacity)
            if paint is not None:
                self._text(canvas, prim, paint)
            return
        if prim.kind == "pick":
            return
        fill = self._paint(style, "fill", prim.opacity) if prim.kind != "line" else None
        stroke = self._paint(style, "stroke", prim.opacity)
        for paint in (fill, stroke):
            if paint is not None:
                self._shape(canvas, prim, paint)

    def _shape(self, canvas: skia.Canvas, prim: Prim, paint: Any) -> None:
        a, b, c, d = prim.geometry
        if prim.kind == "line":
            canvas.drawLine(a, b, c, d, paint)
        elif prim.kind == "rect":
            if c <= 0 or d <= 0:
                return
            rect = self._skia.Rect.MakeXYWH(a, b, c, d)
            r = min(prim.style.radius, c / 2, d / 2)
            canvas.drawRoundRect(rect, r, r, paint) if r else canvas.drawRect(rect, paint)
        elif prim.points is not None:
            path = self._skia.PathBuilder() if hasattr(self._skia, "PathBuilder") else None
            path = self._skia.Path() if path is None else path
            first, *rest = prim.points.tolist()
            path.moveTo(*first)
            for point in rest:
                path.lineTo(*point)
            if prim.style.fill is not None:
                path.close()
            canvas.drawPath(path.detach() if hasattr(path, "detach") else path, paint)

    def _text(self, canvas: skia.Canvas, prim: Prim, paint: Any) -> None:
        style = prim.style
        font = self._font(style)
        x, y = prim.geometry[:2]
        if style.anchor != "start":
            width = font.measureText(prim.text)
            x -= width if style.anchor == "end" else width / 2
        canvas.drawSimpleText(prim.text, x, y, font, paint)

    def _font(self, style: Style) -> Any:
        key = (style.font, style.size, style.weight)
        if key not in self._fonts:
            skia = self._skia
            # A manager of its own does not ask the system for its fonts, nor complain about them.
            face = skia.FontMgr.New_Custom_Empty().makeFromFile(str(fonts.require(style.font)))
            axes: list[tuple[str, float]] = [("wght", style.weight)]
            if style.font == "sans":
                axes.append(("opsz", min(max(style.size, 14), 32)))
            arguments = skia.FontArguments()
            position = skia.FontArguments.VariationPosition
            coordinates = position.Coordinates(
                [position.Coordinate(_tag(name), float(value)) for name, value in axes]
            )
            arguments.setVariationDesignPosition(position(coordinates))
            font = skia.Font(face.makeClone(arguments), style.size)
            font.setSubpixel(True)
            font.setHinting(skia.FontHinting.kNone)
            font.setEdging(skia.Font.Edging.kAntiAlias)
            self._fonts[key] = font
        return self._fonts[key]

    def _paint(self, style: Style, part: str, opacity: float) -> Any:
        token = style.fill if part == "fill" else style.stroke
        colour = self._palette.get(token) if token is not None else None
        if colour is None or opacity <= 0 or (part == "stroke" and style.width <= 0):
            return None
        key = (part, style, opacity == 1)
        paint = self._paints.get(key)
        if paint is None:
            paint = self._new_paint(style, part, self._colour(str(token)))
            self._paints[key] = paint
        if opacity != 1:
            paint.setAlphaf(opacity)
        return paint

    def _new_paint(self, style: Style, part: str, colour: int) -> Any:
        skia = self._skia
        paint = skia.Paint(AntiAlias=True, Color=colour)
        if part == "stroke":
            paint.setStyle(skia.Paint.Style.kStroke_Style)
            paint.setStrokeWidth(style.width)
            round_cap = style.cap == "round"
            paint.setStrokeCap(skia.Paint.Cap.kRound_Cap if round_cap else skia.Paint.Cap.kButt_Cap)
            if style.dash:
                paint.setPathEffect(skia.DashPathEffect.Make(list(style.dash), 0.0))
        return paint

    def _colour(self, token: str) -> int:
        colour = self._palette[token] or "#000000"
        return 0xFF000000 | int(colour[1:], 16)


def _tag(name: str) -> int:
    return int.from_bytes(name.encode(), "big")

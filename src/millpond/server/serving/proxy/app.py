"""The proxy as an ASGI application: permission, choice of the task, and the answer where none serves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final
from urllib.parse import parse_qs, quote

from starlette.datastructures import Headers
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from millpond.model.errors import ConflictError, MillpondError, NotAllowedError, NotFoundError, NotLoggedInError
from millpond.server.auth.accounts import Accounts
from millpond.server.auth.audit import Act
from millpond.server.auth.roles import Caller as AccountCaller
from millpond.server.auth.roles import program_permission
from millpond.server.http.origins import job_addressed
from millpond.server.serving.proxy import pages
from millpond.server.serving.proxy.access_tokens import (
    COOKIE_GOOD_FOR_S,
    AccessToken,
    AccessTokens,
    is_begun_here,
    pass_cookie,
)
from millpond.server.serving.proxy.addresses import AmbiguousNameError, JobAddress, job_meant
from millpond.server.serving.proxy.dispatcher import Dispatcher, ProxyDependencies
from millpond.server.serving.proxy.endpoints import NotRunningError
from millpond.server.serving.proxy.headers import cookies_of
from millpond.server.serving.proxy.presence import Doing, Polls, doing_of
from millpond.server.serving.proxy.request_queue import WaitingClient
from millpond.server.serving.proxy.requests import (
    BrokenAnswerError,
    SilentError,
    TooLargeError,
)
from millpond.specs.api.jobs.jobs import JobInfo
from millpond.specs.job.job_ids import service_of
from millpond.specs.job.serving import OPEN_PATH, ORIGIN_OPEN_PATH, PROXY_PREFIX, base_path

_STATUS: Final = (
    (NotFoundError, 404),
    (NotAllowedError, 403),
    (AmbiguousNameError, 409),
    (ConflictError, 410),
    (TooLargeError, 413),
    (NotRunningError, 503),
    (SilentError, 504),
    (BrokenAnswerError, 502),
)


class Proxy:
    """Serves everything under ``/proxy/`` and at the origins of jobs, and the links that open it.

    Each request is judged by itself: the API token, or a cookie for this very job. A cookie counts only where the
    browser says that the request comes from a page of this origin, or not at all where it comes from. Where jobs have
    origins, browsers are sent there; who shows the token, which no link or form can, is served under ``/proxy/`` too.

    Args:
        others: the routes that it stands before.
    """

    def __init__(
        self, dependencies: ProxyDependencies, access_tokens: AccessTokens, accounts: Accounts, others: ASGIApp
    ) -> None:
        self._others = others
        self._lookup, self._job_files = dependencies.lookup, dependencies.job_files
        self._access_tokens = access_tokens
        self._accounts = accounts
        self._activity = dependencies.activity
        self._polls = Polls()
        self._dispatcher = Dispatcher(dependencies)
        self._front = dependencies.front
        self._origins = dependencies.origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request or a WebSocket, or pass it on to the other routes."""
        if scope["type"] not in ("http", "websocket") or not _is_for_proxy(scope):
            await self._others(scope, receive, send)
            return
        opening = OPEN_PATH if job_addressed(scope) is None else ORIGIN_OPEN_PATH
        answer = await self._opened(scope) if scope["path"] == opening else await self._pass_on(scope, receive, send)
        if answer is not None:
            await answer(scope, receive, send)

    async def _opened(self, scope: Scope) -> Response:
        """The answer to a link that opens a job's programs: the cookie, one for its name, and the way there."""
        ticket = parse_qs(scope["query_string"].decode("latin-1")).get("ticket", [""])[0]
        granted, job = self._access_tokens.redeem(ticket), job_addressed(scope)
        if granted is None or job not in (None, granted.job) or self._caller_of(granted) is None:
            used = NotAllowedError(
                "this link was used already, or is too old", "ask for another one with pond dev open JOB"
            )
            portal = "/portal/sessions" if job is None else ""
            return pages.trouble(Headers(scope=scope), 403, used, html=True, portal=portal)
        if self._is_elsewhere(scope):
            return self._to_origin(scope, granted.job, f"{ORIGIN_OPEN_PATH}?ticket={self._access_tokens.link(granted)}")
        path = base_path(granted.job) if job is None else "/"
        answer = pages.forwarding(path)
        self._let_in(answer, scope, granted, path)
        if job is None and service_of(granted.job) == granted.job:
            name = (await self._lookup.soon(self._front.routes.present(granted.job))).name
            if name:
                self._let_in(answer, scope, replace(granted, job=name), base_path(name))
        return answer

    def _let_in(self, answer: Response, scope: Scope, granted: AccessToken, path: str) -> None:
        """Have a browser keep the cookie for what it was granted."""
        answer.set_cookie(
            pass_cookie(scope),
            self._access_tokens.cookie(granted),
            max_age=COOKIE_GOOD_FOR_S,
            path=path,
            secure=scope["scheme"] == "https",
            httponly=True,
            samesite="strict",
        )

    def _is_elsewhere(self, scope: Scope) -> bool:
        """Whether browsers are to ask for this at the origin of a job."""
        return bool(self._origins.domain) and job_addressed(scope) is None

    def _to_origin(self, scope: Scope, job: str, below: str) -> Response:
        """Where a job is shown instead of under a path of this server."""
        origin = self._origins.url_of(job)
        if not origin:
            hint = "submit it again under a shorter name, or use pond forward"
            too_long = ConflictError(f"the id of {job} cannot be part of a host name", hint)
            return pages.trouble(Headers(scope=scope), 410, too_long, html=True)
        return RedirectResponse(origin + below, 307, pages.PLATFORM_HEADERS)

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> Response | None:
        headers = Headers(scope=scope)
        html = "text/html" in headers.get("accept", "")
        address = JobAddress.of(scope)
        if self._is_elsewhere(scope) and "authorization" not in headers:
            return self._to_origin(scope, address.job, (address.below or b"/").decode("latin-1"))
        if address.below is None:
            return RedirectResponse(f"{address.prefix}/", 308)
        try:
            granted = self._granted(scope, headers, address.job)
            job = await self._job_meant(scope, headers, address.job, granted)
            if job is None:
                cause = "you are not signed in to this job, or no longer"
                not_in = NotLoggedInError(cause, f"open it with pond dev open {address.job}")
                portal = "" if self._origins.domain else f"/portal/jobs/{quote(address.job, safe='')}"
                return pages.trouble(headers, 401, not_in, html, portal=portal)
            if granted is not None and job != address.job:
                return self._led_on(scope, replace(granted, job=job), address.below)
            holds = self._holding(scope, granted, await self._lookup.soon(self._front.routes.present(job)))
            await self._relay(scope, receive, send, replace(address, job=job, holds=holds))
        except MillpondError as error:
            status = next((status for kind, status in _STATUS if isinstance(error, kind)), 503)
            again = isinstance(error, NotRunningError)
            return pages.trouble(headers, status, error, html, again)
        return None

    def _granted(self, scope: Scope, headers: Headers, job: str) -> AccessToken | None:
        """What the cookie grants that counts for a request; None where a token counts, or nothing does."""
        act: Act = scope["state"]["act"]
        bears_token = "authorization" in headers and act.caller is not None
        if bears_token or self._is_elsewhere(scope) or not is_begun_here(scope, headers):
            return None
        return self._access_tokens.granted(job, cookies_of(scope["headers"]).get(pass_cookie(scope), ""))

    async def _job_meant(self, scope: Scope, headers: Headers, written: str, granted: AccessToken | None) -> str | None:
        """The job that a request is for, if the caller, or whom the cookie is for, may open it now; else None.

        Raises:
            NotFoundError, NotAllowedError: the caller, who bears a token, may not; a cookie says nothing of the kind.
            AmbiguousNameError: it may be several.
        """
        act: Act = scope["state"]["act"]
        bearer = act.caller if "authorization" in headers else None
        caller = bearer if granted is None else self._caller_of(granted)
        if caller is None:
            return None
        try:
            return await job_meant(written, caller, self._lookup, self._front.routes)
        except (NotFoundError, NotAllowedError):
            if bearer is not None:
                raise
            return None

    def _led_on(self, scope: Scope, granted: AccessToken, below: bytes) -> Response:
        """A browser at the name of a job goes to its id, which programs that know where they are shown go by."""
        path = base_path(granted.job)
        answer = RedirectResponse(path.rstrip("/") + below.decode("latin-1"), 307, pages.PLATFORM_HEADERS)
        self._let_in(answer, scope, granted, path)
        return answer

    def _holding(self, scope: Scope, granted: AccessToken | None, info: JobInfo) -> Callable[[], bool]:
        """Returns whether what opened a job still does, the cookie or the token, and whoever has it still may."""
        if granted is None:
            return partial(self._accounts.still_may, scope["state"]["act"].caller, *program_permission(info))

        def holds() -> bool:
            caller = self._caller_of(granted)
            return caller is not None and self._accounts.still_may(caller, *program_permission(info))

        return holds

    def _caller_of(self, granted: AccessToken) -> AccountCaller | None:
        return self._accounts.caller_with_pass(granted.user, granted.epoch, granted.token)

    async def _relay(self, scope: Scope, receive: Receive, send: Send, address: JobAddress) -> None:
        """Have a request answered, at once or, where requests may wait for a replica, as soon as one is ready."""
        ways = self._front.routes.ways(address.job)
        job, present = ways[0][0], self._front.routes.present(address.job)
        hold = (await self._job_files.soon(present)).hold
        client = WaitingClient(receive)
        doing = doing_of(scope)
        if doing is Doing.EITHERS:
            client = WaitingClient(
                self._polls.watch(job, scope, receive, partial(self._activity.used, job, of_page=True))
            )
        with self._activity.use(job, counts=doing is Doing.SOMEBODYS), self._front.meter.request(job):
            try:
                if len(ways) > 1:  # the other revision may answer for one at rest; the next request finds it awake
                    await self._front.wake(job)
                obstacle = await self._dispatcher.attempt(ways, scope, client, send, address)
                if obstacle is None:
                    return
                if hold is None:
                    raise obstacle

                async def again(begins: Callable[[], None]) -> bool:
                    async def answer(message: Message) -> None:
                        begins()
                        await send(message)

                    fresh = self._front.routes.ways(address.job)
                    return await self._dispatcher.attempt(fresh, scope, client, answer, address) is None

                await self._front.queue.hold(present, hold, client, again)
            finally:
                client.close()


def _is_for_proxy(scope: Scope) -> bool:
    path = scope["path"]
    return job_addressed(scope) is not None or path.startswith(PROXY_PREFIX) or path == OPEN_PATH

"""What calls warn of: once in a process, which set_warn_always turns into each time, or each time."""

import warnings


def probe(torch, P):
    t = torch.tensor

    def told(*calls):
        """Classes and beginnings of the warnings of calls."""
        found = []
        torch.set_warn_always(True)
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                for call in calls:
                    call()
                    texts = [str(w.message).replace("facula.", "torch.") for w in caught]
                    texts = [text.split(" (Triggered")[0][:60] for text in texts]
                    found.append([(w.category.__name__, text) for w, text in zip(caught, texts)])
                    caught.clear()
        finally:
            torch.set_warn_always(False)
        return found

    @P
    def a_tensor_of_a_tensor():
        return told(lambda: t(t([1.0])), lambda: t([t(1.0)]), lambda: torch.as_tensor(t([1.0])))

    @P
    def T_of_other_ranks():
        ranks = ((2, 3, 4), (2,), (), (2, 3))
        return told(*(lambda s=s: torch.ones(s).T for s in ranks), lambda: torch.ones(2, 3, 4).mT)

    @P
    def a_grid_without_an_order():
        v = t([1, 2])
        return told(lambda: torch.meshgrid(v, v), lambda: torch.meshgrid(v, v, indexing="ij"))

    @P
    def deviations_of_too_few_elements():
        x = torch.ones(2, 1)
        return told(
            lambda: t([1.0]).std(),
            lambda: x.var(1),
            lambda: x.var(1, unbiased=False),
            lambda: torch.std_mean(x, 1),
            lambda: torch.var_mean(x, correction=2),
            lambda: torch.ones(0).std(),
            lambda: torch.ones(0, 3).var(1),
            lambda: x.var(),
            lambda: torch.cov(x),
        )

    @P
    def functions_that_others_replace():
        eye, ones = torch.eye(2), torch.ones(2, 1)
        return told(
            lambda: torch.qr(eye),
            lambda: torch.cholesky(eye),
            lambda: torch.lu_solve(ones, *torch.linalg.lu_factor(eye)),
            lambda: torch.triangular_solve(ones, eye),
            lambda: torch.cross(torch.ones(3, 3), torch.ones(3, 3)),
            lambda: torch.cross(torch.ones(3, 3), torch.ones(3, 3), dim=1),
            lambda: torch.zeros(3).index_reduce(0, t([0]), torch.ones(1), "mean"),
            lambda: torch.zeros(3).scatter(0, t([0]), torch.ones(1), reduce="add"),
        )

    @P
    def masks_of_bytes():
        x, mask = torch.ones(2), t([1, 0], dtype=torch.uint8)
        return told(lambda: x[mask], lambda: torch.where(mask, x, x))

    @P
    def results_that_outgrow_out():
        x = t([1.0, 2.0])
        return told(lambda: torch.add(x, 1, out=torch.empty(1)), lambda: torch.add(x, 1, out=torch.empty(0)))

    @P
    def imaginary_parts_that_are_lost():
        return told(lambda: t([1j]).float(), lambda: t([1j]).bool(), lambda: t([1j]).real)

    @P
    def transforms_without_a_window():
        x = torch.arange(32.0)
        spectra = torch.stft(x, 8, window=torch.ones(8), return_complex=True)
        return told(
            lambda: torch.stft(x, 8, return_complex=True),
            lambda: torch.stft(x, 8, window=torch.ones(8), return_complex=False),
            lambda: torch.istft(spectra, 8),
        )

    @P
    def numbers_that_leave_the_graph():
        x = torch.ones((), requires_grad=True)
        return told(lambda: float(x), lambda: x.item(), lambda: float(x.detach()))

    @P
    def an_error_of_a_warning():
        torch.set_warn_always(True)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                return torch.ones(1).std()
        finally:
            torch.set_warn_always(False)

    @P
    def a_backward_hook_where_no_input_has_a_gradient():
        net = torch.nn.Linear(2, 2)
        net.register_full_backward_hook(lambda *args: None)
        inner = torch.ones(1, 2, requires_grad=True)
        return told(lambda: net(torch.ones(1, 2)).sum().backward(), lambda: net(inner).sum().backward())

    @P
    def a_number_of_what_has_a_gradient():
        y = torch.ones((), requires_grad=True) * 2

        def unrecorded():
            with torch.no_grad():
                return float(y), complex(y)

        return told(unrecorded, lambda: float(y), lambda: complex(y), lambda: int(y), y.item, lambda: bool(y))
